"""Serving: what an engine is to run, and as much of it as fits; Command: how it is started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.errors import AppError
from engine.hardware.footprint import Footprint
from engine.hardware.reasons import gib
from engine.hardware.shape import ModelShape


class ExportRefused(AppError):
    """No command of that engine serves this model there."""


class Kind(StrEnum):
    """Kinds of drafts, by the names that they are published under."""

    NGRAM = "n-grams"
    SUFFIX = "suffix"
    MODEL = "draft model"
    MTP = "MTP"
    EAGLE3 = "EAGLE-3"
    DFLASH = "DFlash"
    DSPARK = "DSpark"


@dataclass(frozen=True, slots=True)
class Draft:
    """What drafts, and how far."""

    kind: Kind
    weights: "Weights | None" = None  # None: there are none, or they are in the model's own files
    tokens: int | None = None  # per pass; None: nothing was measured
    origin: str = ""  # where it comes from, in one sentence


@dataclass(frozen=True, slots=True)
class Weights:
    """Where weights are: a repository of the hub, or a path on this machine."""

    source: str
    file: str = ""  # of a repository, where one file is the model
    local: bool = False

    @property
    def gguf(self) -> bool:
        """Whether this is a GGUF file."""
        return (self.file or self.source).endswith(".gguf")


@dataclass(frozen=True, slots=True)
class Split:
    """GPUs that share every layer (tensor), times groups of layers (pipeline)."""

    tensor: int = 1
    pipeline: int = 1


@dataclass(frozen=True, slots=True)
class Serving:
    """One model on ``nodes`` machines with ``gpus`` GPUs each."""

    name: str  # under which programs ask for it
    weights: Weights
    context: int  # tokens of the longest conversation
    gpus: int = 1
    nodes: int = 1
    split: Split = Split()
    sessions: int | None = None  # conversations at a time; None: as many as the engine likes
    memory: float | None = None  # share of each GPU that was planned with; None: nothing was
    drafts: tuple[Draft, ...] = ()  # the first choice first


@dataclass(frozen=True, slots=True)
class Command:
    """One line for each machine, the first machine first; ``notes`` say what else to know."""

    engine: str  # with the version whose options were read
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


HEAD = "FIRST_MACHINE"  # in place of the address of the first machine
SHARE = 0.9  # of a GPU's memory: vLLM's own default
START = 3  # tokens to draft where nothing was measured: SGLang's own default for draft models


def flags(**given: object) -> list[str]:
    """``max_len=5`` as --max-len 5; None is left out."""
    found: list[str] = []
    for name, value in given.items():
        if value is not None:
            found += [f"--{name.replace('_', '-')}", str(value)]
    return found


def on_each(
    nodes: int, line: Sequence[str], joins: Callable[[int], Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """The same line for each machine; ``joins`` gives what joins one to the others, if there are any."""
    if nodes == 1:
        return (tuple(line),)
    return tuple((*line, *joins(rank)) for rank in range(nodes))


def chosen(
    drafts: Sequence[Draft], has: Callable[[Draft], bool], engine: str
) -> tuple[Draft | None, list[str]]:
    """The first draft that an engine ``has``, and notes on it and on those that it lacks."""
    notes: list[str] = []
    for draft in drafts:
        if has(draft):
            return draft, [*notes, f"drafts: {draft.kind}, {draft.origin}"]
        notes.append(f"drafts: {engine} cannot use {draft.kind} ({draft.origin})")
    return None, [*notes, "drafts: none, so it decodes plainly"]


def split(shape: ModelShape | None, gpus: int, nodes: int) -> Split:
    """Tensor parallel inside a machine, as far as attention heads divide; pipeline for the rest.

    Raises ExportRefused where there are more groups than layers.
    """
    if gpus == 0:
        return Split()
    heads = shape.heads if shape else gpus
    tensor = next(size for size in range(gpus, 0, -1) if gpus % size == 0 and heads % size == 0)
    pipeline = nodes * gpus // tensor
    if shape and pipeline > shape.layers:
        raise ExportRefused(
            f"{nodes * gpus} GPUs are too many: {tensor} can share a layer, and there are "
            f"{shape.layers} layers for {pipeline} groups"
        )
    return Split(tensor, pipeline)


def fitting(form: Footprint, context: int | None, gpus: int, memory: int) -> tuple[int, int]:
    """The longest context up to ``context`` and how many such conversations fit all GPUs together.

    ``memory`` is that of one GPU in bytes. Raises ExportRefused where the weights do not fit.
    """
    room = int(SHARE * memory * gpus) - form.weights
    wanted = min(context or form.context, form.context)
    if room < form.cache(1, 0, 1):
        need = -(-form.weights // int(SHARE * memory))
        raise ExportRefused(
            f"{gib(form.weights)} of weights do not fit {gpus} x {gib(memory)}; "
            f"at least {max(need, gpus + 1)} such GPUs are needed"
        )
    each = form.kv_row * wanted + form.state
    if each > room:
        return max(1, (room - form.state) // max(form.kv_row, 1)), 1
    return wanted, max(1, room // max(each, 1))
