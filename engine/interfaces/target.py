"""What targets promise: scored trees, layers that draft for the rest, and where weights live."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits


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
    """A target that can leave a prompt chunk in the middle of a pass, which then commits nothing."""

    def abort_when(self, asked: Callable[[], bool]) -> None:
        """``feed`` asks this several times in 50 ms, in the engine's own thread."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A target whose slots share one store, which cannot hold a whole context for each of them."""

    room: int  # committed tokens of all slots together

    def clear(self) -> None:
        """Forget everything, also what is left of what was forgotten."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A target whose slots take more than the tokens in them need, and keep it until they are empty."""

    def taken(self, slot: int) -> int:
        """Rows that a slot takes by now."""
        ...


@runtime_checkable
class Resting(Protocol):
    """A target that can put away what slots hold, so that it takes part in no pass of others."""

    slots: int  # those that run at once, and others for what is put away
    token_bytes: int  # of what is put away

    def rest(self, slot: int) -> None:
        """Put away what the slot has committed; it can only be cropped, shared and woken then."""
        ...

    def wake(self, slot: int) -> None:
        """Bring back what rests; where there is no room for it, it is gone: ``length`` tells."""
        ...


@runtime_checkable
class Stepped(Protocol):
    """A target that multiplies by whole blocks of rows: the first row of a block costs what all of it does."""

    @property
    def steps(self) -> Sequence[int]:
        """Rows of a pass with which a block begins; whoever prices rows measures there."""
        ...


SHARED = 16  # tokens that another slot has read: fewer are read as fast


@runtime_checkable
class Sharing(Protocol):
    """A target that can give a slot what another one has read."""

    def share(self, source: int, slot: int, length: int) -> None:
        """The slot holds the first ``length`` committed tokens of ``source``, and nothing else.

        Of a source that rests it may hold none, where there is no room for them: ``length`` tells.
        """
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
