"""The seams: what targets, drafters and length policies promise each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from engine.cost import PassCost
from engine.decode.chance import Chance
from engine.decode.tree import DraftTree
from engine.decode.verify import Logits, Verdict
from engine.request import Prior, SamplingParams

FLOOR = 0.15  # estimated probability that makes a token worth its row, where nothing says more


class Capability(StrEnum):
    """What a target offers and a drafter needs; checked once, when an engine is built."""

    TREE = "tree"  # scores trees, not only chains
    LAYERS = "layers"  # runs some of its layers (early exit)
    DRAFT_MODEL = "draft model"  # a second, cheaper target is loaded


@dataclass(frozen=True, slots=True)
class Scores:
    """What the target says of every node of one tree."""

    rows: Logits  # [N, V], as the target has them
    states: Tensor | None = None  # [L, N, C] after each layer, before the final norm; if traced

    @property
    def logits(self) -> Tensor:
        """The rows [N, V] for torch."""
        return torch.from_numpy(self.rows) if isinstance(self.rows, np.ndarray) else self.rows


@dataclass(frozen=True, slots=True)
class Grown:
    """What a draft model says of rows that it was fed."""

    logits: Tensor  # [n, V]
    hidden: Tensor  # [n, C] after the final norm: what an acceptance head reads


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to append behind the uncommitted ones of a slot.

    ``parents`` index the slot's uncommitted rows in the order they were grown; -1 is the prefix.
    Only the ``last`` rows are scored; None means all of them.
    """

    slot: int
    tokens: Sequence[int]
    parents: Sequence[int]
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Read-only view of a running request for drafters and policies."""

    request: int
    slot: int
    ids: Sequence[int]  # committed tokens; the last one is the tree's root
    sampling: SamplingParams
    chance: Chance
    stop_tokens: frozenset[int] = frozenset()
    priors: Mapping[str, Prior] = field(default_factory=dict)  # by drafter

    @property
    def draws(self) -> bool:
        """Whether candidates are drawn from the draft's law; else they are its likeliest tokens.

        Chosen candidates take one random number for each emitted token, as plain decoding does, so
        a seeded request does not depend on what was drafted. Drawn ones are accepted more often.
        """
        return not self.sampling.greedy and self.sampling.seed is None


class Stop(Protocol):
    """Ends one chain early; sees only drafted tokens, so the law of what is emitted stays."""

    def drawn(self, probability: float) -> bool:
        """A token was drafted with this probability; True: the draft ends with it."""
        ...

    def fed(self, hidden: Tensor) -> bool:
        """The newest token, first the root, ran through the draft model: state [C].

        The state proposes the next token, which is drawn next; True: the draft ends here.
        """
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """How far one draft may go: levels below the root, and nodes in all without the root."""

    depth: int
    nodes: int
    exact: bool = False  # spend all of it; else it is a cap, and a drafter may choose less
    floor: float = 0.0  # least probability under the draft that makes a chosen node worth its row
    prices: tuple[float, ...] = ()  # tokens that 0, 1, ... drafted rows must bring: a drafter that
    #                                 knows its chances drafts where it gains most; in place of floor
    stop: Stop | None = None  # fresh for every draft
    exit_layer: int | None = None  # early exit only; None: the drafter's own
    trace: bool = False  # the policy wants ``Scores.states`` of this round

    def worth(self, chances: Sequence[float]) -> tuple[int, float]:
        """How many of these candidates to draft, likeliest first, and how many are expected to hold.

        With prices so many that they gain most over what they must bring, else those above the floor.
        """
        most = len(chances)
        if self.prices and not self.exact:
            sums = [0.0, *accumulate(chances)]
            gains = [a - price for a, price in zip(sums, self.prices, strict=False)]
            most = max(range(len(gains)), key=gains.__getitem__)
        elif not self.exact:
            least = self.floor or FLOOR
            most = next((i for i, chance in enumerate(chances) if chance < least), most)
        return most, sum(chances[:most])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one draft; seconds are wall time of the whole step it took part in."""

    context: Context
    tree: DraftTree
    verdict: Verdict
    draft_seconds: float  # this drafter's call, for all ``batch`` requests that shared it
    score_seconds: float  # the target's pass, for all rows of the step
    scores: Scores | None = None
    batch: int = 1


class Target(Protocol):
    """Scores trees behind committed prefixes; one slot holds one sequence."""

    offers: frozenset[Capability]
    context: int
    vocab: int
    layers: int
    parameters: int

    def length(self, slot: int) -> int:
        """Committed tokens whose keys are cached."""
        ...

    def feed(self, slot: int, tokens: Sequence[int], trace: int = 0) -> Tensor | None:
        """Commit tokens unjudged: a prompt chunk.

        With ``trace``, the states [L, n, C] of at most that many last rows, as in ``Scores``.
        """
        ...

    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Hang one tree behind each slot's prefix and run the model over all of them."""
        ...

    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keep these nodes of the last tree as prefix, forget the others."""
        ...

    def crop(self, slot: int, length: int) -> None:
        """Forget everything behind the first ``length`` tokens."""
        ...


class DraftModel(Target, Protocol):
    """A target that also grows a tree level by level; what draft models are driven by."""

    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        """Run more rows, of several slots in one pass."""
        ...

    def pending(self, slot: int) -> int:
        """Uncommitted rows."""
        ...

    def tokens(self, slot: int) -> Sequence[int]:
        """The committed tokens themselves."""
        ...


@runtime_checkable
class Abortable(Protocol):
    """A target that can leave a prompt chunk in the middle; nothing of it is committed then."""

    def abort_when(self, asked: Callable[[], bool]) -> None:
        """``feed`` asks this several times in 50 ms, in the engine's own thread."""
        ...


class LayeredTarget(Target, Protocol):
    """A target whose first layers can draft for the rest."""

    def shallow(
        self, slots: Sequence[int], tokens: Sequence[int], layers: int
    ) -> tuple[Tensor, Tensor]:
        """Append one row to each slot's chain: (logits [B, V], states [layers, B, C])."""
        ...

    def read(self, states: Tensor) -> Tensor:
        """Final norm and head: states [..., C] of any layer to logits [..., V]."""
        ...


@dataclass(frozen=True, slots=True)
class MapParts:
    """One linear map of a layer: the stored matrices whose rows, one after the other, make it up."""

    layer: int
    name: str
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Streaming:
    """What is streamed, and the memory that there is for all of the model."""

    files: tuple[Path, ...]  # safetensors
    maps: tuple[MapParts, ...]  # in the order in which a pass uses them
    limit: int  # bytes
    fixed: int  # bytes that the model takes besides its layers: embedding, head, norms
    row_bytes: int  # bytes that a pass takes for every row
    dtype: str  # of the computation
    device: str


@dataclass(frozen=True, slots=True)
class Block:
    """Rows [first, first + r) of a map."""

    first: int
    weight: Tensor  # [r, in]


class LayerSource(Protocol):
    """Where the weights of layers live; gives each of them when a pass needs it."""

    widest: int  # rows of the longest pass that the memory limit has room for
    whole: int  # first layers that stay in memory entirely: cheap to run alone
    streamed: int  # bytes that every pass moves
    resident: int  # bytes of layers that stay

    @property
    def waited(self) -> float:
        """Seconds that passes have waited for weights; 0 where the host never waits."""
        ...

    def blocks(self, layer: int, name: str) -> Iterator[Block]:
        """The rows of one map; a block is valid until the next one is asked for.

        Any order gives the right weights; the order of the pass gives them soonest. Raises
        LayerUnreadable.
        """
        ...

    def close(self) -> None:
        """End what works in the background, and give back what is open."""
        ...


@runtime_checkable
class Streamed(Protocol):
    """A target whose layers come from a source."""

    source: LayerSource


@runtime_checkable
class Layered(Protocol):
    """A target whose first layers are a draft model of their own."""

    def early(self, layers: int) -> DraftModel | None:
        """At most that many first layers and the head, without memory of their own; None: too few stay."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A target that takes some drafts or none, and says why."""

    def refuses(self, needs: frozenset[Capability]) -> str:
        """Why no drafter with these needs can run; empty when one can."""
        ...


class Drafter(Protocol):
    """Proposes one tree per request; never sees the target's scores of this round."""

    needs: ClassVar[frozenset[Capability]]
    length: ClassVar[Budget]  # the longest useful draft; nodes > depth says that it draws trees
    # proposes only where it has reason to, and says in ``DraftTree.expected`` how much; asking
    # costs next to nothing
    declines: ClassVar[bool]

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context, within its budget."""
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from what was accepted."""
        ...

    def forget(self, request: int, slot: int) -> None:
        """A request ended; drop what belongs to it."""
        ...


class LengthPolicy(Protocol):
    """Decides how long drafts are; built from ``Parts`` and the drafter's name."""

    prompt_rows: ClassVar[int]  # last rows of a prompt whose states it wants; 0: none

    def prompt(self, context: Context, states: Tensor) -> None:
        """States [L, n, C] of the last rows of the prompt; only called if ``prompt_rows``."""
        ...

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """One budget for each context of one drafter, at most its ``longest``."""
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from what was accepted and what it cost."""
        ...

    def forget(self, request: int) -> None:
        """A request ended; drop what belongs to it."""
        ...


@runtime_checkable
class SelfMeasured(Protocol):
    """A drafter that measures what its next drafts depend on; history gives it back as a prior."""

    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """Share of each kind of event in this request, at most 1 in all, in an order of its own.

        Also how many events were measured, of which the newest may count most.
        """
        ...


@runtime_checkable
class Reader(Protocol):
    """A drafter with a cache of its own: what was committed since it last drafted is read first."""

    def reading(self, context: Context) -> float:
        """Seconds that this is going to take; 0 before any reading was measured."""
        ...


def starts_empty(drafter: Drafter) -> bool:
    """Whether what it drafts from goes with the engine: no new session begins as the last one ended."""
    return bool(getattr(drafter, "starts_empty", False))


def farthest(drafter: Drafter) -> Budget:
    """How far it goes when nobody asks; its ``reach`` where that depends on what passes cost here."""
    reach: Budget = getattr(drafter, "reach", drafter.length)
    return reach


@runtime_checkable
class Arbiter(Protocol):
    """A drafter that lets others draft."""

    arms: Mapping[str, "Arm"]

    def playing(self, request: int) -> str:
        """The arm that drafted this round."""
        ...

    def reason(self, request: int) -> str:
        """One sentence: why it was that arm."""
        ...


@dataclass(frozen=True, slots=True)
class Arm:
    """A drafter with the policy that sets its lengths: what ``auto`` chooses among."""

    drafter: Drafter
    policy: LengthPolicy


@dataclass(frozen=True, slots=True)
class Parts:
    """What every drafter and policy is built from."""

    target: Target
    draft_model: DraftModel | None = None
    cost: PassCost = field(default_factory=PassCost)
    draft_step: float = 0.0  # seconds of one row through the draft model; 0: not measured
    options: Mapping[str, float] = field(default_factory=dict)
    acceptance_head: Path | None = None
    arms: Mapping[str, Arm] = field(default_factory=dict)  # for auto alone
