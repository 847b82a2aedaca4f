"""Plan: where a model's layers lie and what drafts for it, with a sentence for every choice."""

from dataclasses import dataclass
from enum import StrEnum

from engine.hardware.footprint import Footprint


class Tier(StrEnum):
    """Where weights lie between passes."""

    DEVICE = "device"  # memory of the GPU
    RAM = "ram"
    DISK = "disk"


class Stage(StrEnum):
    """Ways to place a model, best first: the order of retreat."""

    DEVICE = "all on the GPU"
    SHARED = "GPU and RAM"  # torch streams the rest, llama.cpp computes it on the processor
    RAM = "all in RAM"
    DEVICE_DISK = "GPU, RAM and disk"
    RAM_DISK = "RAM and disk"


@dataclass(frozen=True, slots=True)
class PlanConstraints:
    """What a person insists on; None leaves it to the plan."""

    context: int | None = None  # tokens; less is planned, and reported, where it does not fit
    batch: int | None = None  # conversations that answer at once
    backend: str | None = None
    dtype: str | None = None
    anyway: bool = False  # a plan also where there is too little memory
    draft: bool = True  # use a draft model where one is paired and fits


@dataclass(frozen=True, slots=True)
class Candidates:
    """One model in every form in which it can run, preferred forms first."""

    model: str
    forms: tuple[Footprint, ...]
    draft: tuple[Footprint, ...] = ()  # forms of the draft model that is paired with it
    exit_layer: int | None = None  # for weights trained with an early-exit loss


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that one purpose takes of one tier."""

    tier: Tier
    what: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a field of the plan is what it is, in one sentence."""

    field: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one model on one machine."""

    model: str
    stage: Stage
    backend: str  # a name of ``engine.models.TARGETS``
    dtype: str
    device: str  # cuda or cpu: where passes run
    placement: tuple[Tier, ...]  # of each layer, first layer first
    drafter: str  # a name of ``engine.drafters``
    draft_model: str | None
    context: int  # tokens of one conversation
    batch: int  # conversations that answer at once; in their room shorter ones stay warm
    resident: int | None  # bytes of memory that streaming may use; None: nothing is streamed
    needs: tuple[Need, ...]
    room: tuple[tuple[Tier, int], ...]  # bytes free for the plan, margins taken off
    why: tuple[Reason, ...]
    windowed: bool = False  # layers with sliding windows keep no more than these see
    cpu_experts: int = 0  # first layers whose experts are in RAM, though the rest is on the GPU

    @property
    def gpu_layers(self) -> int:
        """Layers on the GPU."""
        return self.placement.count(Tier.DEVICE)

    def needed(self, tier: Tier) -> int:
        """Bytes taken of a tier."""
        return sum(need.bytes for need in self.needs if need.tier == tier)

    def reason(self, field: str) -> str:
        """The sentence for one field."""
        return next(reason.sentence for reason in self.why if reason.field == field)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model cannot run here: what the least of its plans needs, and what there is."""

    model: str
    needed: int  # bytes
    free: int  # bytes
    sentence: str
