"""What a target is: the model that scores draft trees, and how its slots and layers use memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits

SHARED = 16  # tokens: a shorter common prefix is read as fast as it is shared
UNLIMITED = 1 << 30  # rows


class Capability(StrEnum):
    """What a target offers and a drafter needs; checked once, when an engine is built."""

    TREE = "tree"  # scores trees, not only chains
    LAYERS = "layers"  # runs some of its layers (early exit)
    DRAFT_MODEL = "draft model"  # a second, cheaper target is loaded


@dataclass(frozen=True, slots=True)
class Scores:
    """What a target computes for every node of one tree."""

    rows: Logits  # [N, V], in the array type of the target
    states: Tensor | None = None  # [L, N, C] after each layer, before the final norm; if traced

    @property
    def logits(self) -> Tensor:
        """The rows [N, V] as a torch tensor."""
        return torch.from_numpy(self.rows) if isinstance(self.rows, np.ndarray) else self.rows

    def with_row(self, node: int, again: "Scores") -> "Scores":
        """With another pass's only row in place of this node's."""
        rows = self.rows.copy() if isinstance(self.rows, np.ndarray) else self.rows.clone()
        rows[node] = again.rows[0]
        return replace(self, rows=rows)


@dataclass(frozen=True, slots=True)
class Grown:
    """What a draft model computes for the rows that it was fed."""

    logits: Tensor  # [n, V]
    hidden: Tensor  # [n, C] after the final norm: what an acceptance head reads


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to append after the uncommitted ones of a slot.

    ``parents`` index the slot's uncommitted rows in the order they were grown; -1 is the prefix.
    Only the ``last`` rows are scored; None means all of them.
    """

    slot: int
    tokens: Sequence[int]
    parents: Sequence[int]
    last: int | None = None


class LayerSource(Protocol):
    """Where streamed layers are stored; gives each weight when a pass needs it."""

    widest: int  # rows of the longest pass that fits into the memory limit
    whole: int  # first layers that stay in memory entirely: cheap to run alone
    streamed: int  # bytes that every pass reads
    resident: int  # bytes of layers that stay in memory

    @property
    def waited(self) -> float:
        """Seconds that passes have waited for weights; 0 where the host never waits."""
        ...

    def blocks(self, layer: int, name: str) -> Iterator["Block"]:
        """The rows of one map; a block is valid until the next one is taken.

        Any order gives the right weights; the order of the pass gives them soonest. Raises
        LayerUnreadable.
        """
        ...

    def close(self) -> None:
        """Stop the background work and close the files."""
        ...


class Target(ABC):
    """A model that scores trees after committed prefixes; one slot holds one sequence.

    A draft model is a target, too. What a target cannot do keeps the default of this class.
    """

    offers: frozenset[Capability]
    context: int  # tokens
    vocab: int
    layers: int
    parameters: int

    can_share = False  # whether ``share`` copies anything
    limits_rows = False  # whether ``limit_rows`` changes anything
    lends_rows = False  # whether it has ``decode``
    reads_alike = False  # whether ``decode`` gives a prompt's last row the bits that it has alone
    sums_alike = True  # whether attention is meant to give a row the same bits in every pass
    max_slots = UNLIMITED  # slots that there are
    shared_rows: int | None = None  # cache rows of all slots together; None: a context for each
    swap_bytes = 0  # bytes of RAM for a token that is swapped out; 0: slots cannot be swapped out
    swap_fixed = 0  # bytes of RAM for each slot that is swapped out, besides its tokens
    source: LayerSource | None = None  # of streamed layers; None: all weights are in memory

    @abstractmethod
    def length(self, slot: int) -> int:
        """Committed tokens whose keys are cached."""

    @abstractmethod
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens without verifying them: a prompt chunk."""

    @abstractmethod
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Score one tree after each slot's prefix, all in one pass."""

    @abstractmethod
    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keep these uncommitted rows as prefix, in this order; forget the others."""

    @abstractmethod
    def crop(self, slot: int, length: int) -> None:
        """Forget uncommitted rows and every token after the first ``length``.

        A running state may go back further than asked: see ``length`` afterwards.
        """

    def decode(self, slot: int, tokens: Sequence[int]) -> Logits:
        """Commit tokens; the last one's logits [1, V], which the next pass overwrites.

        Raises Aborted where reading a prompt was given up; the slot is as it was.
        """
        raise NotImplementedError

    # Draft models, which grow a tree level by level.

    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        """Run more rows, of several slots in one pass."""
        raise NotImplementedError

    def pending(self, slot: int) -> int:
        """Uncommitted rows."""
        raise NotImplementedError

    def tokens(self, slot: int) -> Sequence[int]:
        """The committed tokens themselves."""
        raise NotImplementedError

    # Early exit: targets that offer LAYERS.

    def shallow(
        self, slots: Sequence[int], tokens: Sequence[int], layers: int
    ) -> tuple[Tensor, Tensor]:
        """Append one row to each slot's chain: (logits [B, V], states [layers, B, C])."""
        raise NotImplementedError

    def read(self, states: Tensor) -> Tensor:
        """Final norm and head: states [..., C] of any layer to logits [..., V]."""
        raise NotImplementedError

    def early_draft_model(self, layers: int) -> "Target | None":
        """At most ``layers`` first layers and the head as a draft model that needs no more memory."""
        return None

    # Limits.

    def refuses(self, needs: frozenset[Capability]) -> str:
        """Why no drafter with these needs can run; empty when one can."""
        return ""

    @property
    def max_rows(self) -> int:
        """Rows of the longest pass that fits into memory."""
        return UNLIMITED if self.source is None else self.source.widest

    def running_state(self, slot: int) -> bytes:
        """What passes left in a slot that the logits of its next row may not show; most leave nothing."""
        del slot
        return b""

    def limit_rows(self, rows: int) -> None:  # noqa: B027 - see ``limits_rows``
        """Score in passes of at most ``rows`` rows."""

    @property
    def row_blocks(self) -> Sequence[int]:
        """Rows of a pass at which the next block of a matrix kernel starts: its first row costs most."""
        return ()

    def rows_taken(self, slot: int) -> int:
        """Cache rows that a slot takes now; some caches keep more rows than they have tokens."""
        return self.length(slot)

    def abort_when(self, aborted: Callable[[], bool]) -> bool:
        """Let ``feed`` stop, with nothing committed, once ``aborted`` returns True; False: it cannot.

        ``feed`` calls it several times in 50 ms, in the engine's own thread.
        """
        return False

    # Slots.

    def share(self, source: int, slot: int, length: int) -> None:
        """Copy the first ``length`` committed tokens of ``source`` in place of all that ``slot`` held.

        Where there is no room for a swapped-out source, the slot is empty afterwards; a running state
        is shared up to its last checkpoint, or not at all: see ``length``.
        """
        raise NotImplementedError

    def swap_out(self, slot: int) -> None:  # noqa: B027 - not every target can
        """Move a slot's committed tokens to RAM; it can then only be cropped, shared and swapped in."""

    def swap_in(self, slot: int) -> None:  # noqa: B027 - not every target can
        """Bring a slot back; where there is no room it is empty afterwards: see ``length``."""

    def clear(self) -> None:  # noqa: B027 - only where slots share rows
        """Forget all slots, and overwrite the rows that they shared."""


@dataclass(frozen=True, slots=True)
class MapParts:
    """One linear map of a layer: the stored matrices whose rows, one after the other, make it up."""

    layer: int
    name: str
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Streaming:
    """What is streamed, and the memory limit of the whole model."""

    files: tuple[Path, ...]  # safetensors
    maps: tuple[MapParts, ...]  # in the order in which a pass uses them
    limit: int  # bytes
    fixed: int  # bytes that the model takes outside its layers: embedding, head, norms
    row_bytes: int  # bytes that a pass takes for every row
    dtype: str  # of the computation
    device: str


@dataclass(frozen=True, slots=True)
class Block:
    """Rows [first, first + r) of a map."""

    first: int
    weight: Tensor  # [r, in]
