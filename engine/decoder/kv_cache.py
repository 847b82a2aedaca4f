"""KVCache: keys and values of every slot, first the prefix, then the rows of a draft tree.

Row layout of a slot, T = rows allocated:
    [0, length)                  committed tokens, row == position
    [length, length + pending)   nodes of the tree in the order they were placed; a node's position
                                 is length + its depth, its row is where it was placed
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.speculation.tree import ancestor_bits

BLOCK = 64  # rows that attention reads at once
_FIRST_ROWS = 512
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where n new rows are: written to [start, end); each sees the prefix and some uncommitted rows."""

    positions: tuple[int, ...]  # [n]
    length: int  # of the prefix
    start: int
    end: int
    seen: tuple[int, ...]  # [n] ``ancestor_bits`` among the rows [length, end)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Dimensions of every slot: layers x 2 x K x T x D."""

    layers: int
    kv_heads: int
    head_dim: int
    rows: int  # most rows of a slot: the context
    dtype: torch.dtype
    device: torch.device


@dataclass
class CacheSlot:
    """One slot: its memory, how much of it is committed, and its pending rows."""

    keys: list[Tensor] = field(default_factory=list)  # per layer [K, T, D]
    values: list[Tensor] = field(default_factory=list)
    arrays: list[tuple[Array, Array]] = field(default_factory=list)  # both, once NumPy reads them
    length: int = 0
    depths: list[int] = field(default_factory=list)  # of pending rows
    seen: list[int] = field(default_factory=list)  # of pending rows: ``ancestor_bits``


class KVCache:
    """Slots are made when first used and grow by doubling, so idle context costs nothing."""

    def __init__(self, shape: CacheShape) -> None:
        self.shape = shape
        self._slots: dict[int, CacheSlot] = {}

    def length(self, slot: int) -> int:
        """Committed rows."""
        return self._slot(slot).length

    def pending(self, slot: int) -> int:
        """Uncommitted rows."""
        return len(self._slot(slot).depths)

    def taken(self, slot: int) -> int:
        """Rows that there is memory for."""
        row = self._slot(slot)
        return row.keys[0].shape[1] if row.keys else 0

    def place(self, slot: int, parents: Sequence[int]) -> Layout:
        """Append rows after the pending ones; a parent indexes pending rows, -1 is the prefix."""
        row = self._slot(slot)
        before = len(row.depths)
        start = row.length + before
        end = start + len(parents)
        self._reserve(row, end)
        fresh = append_pending(row, parents)
        positions = tuple(row.length + depth for depth in row.depths[before:])
        return Layout(positions, row.length, start, end, tuple(fresh))

    def whole(self, slot: int) -> Layout:
        """One layout over every pending row."""
        row = self._slot(slot)
        positions = tuple(row.length + depth for depth in row.depths)
        end = row.length + len(positions)
        return Layout(positions, row.length, row.length, end, tuple(row.seen))

    def write(
        self, slot: int, layer: int, layout: Layout, kv: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Store k, v [n, K, D]; returns all keys and values [K, T, D], unused rows included."""
        row = self._slot(slot)
        keys, values = row.keys[layer], row.values[layer]
        keys[:, layout.start : layout.end] = kv[0].transpose(0, 1)
        values[:, layout.start : layout.end] = kv[1].transpose(0, 1)
        return keys, values

    def arrays(self, slot: int) -> Sequence[tuple[Array, Array]]:
        """Keys and values [K, T, D] of every layer for NumPy, in the same memory; on the CPU."""
        row = self._slot(slot)
        if not row.arrays:
            pairs = zip(row.keys, row.values, strict=True)
            row.arrays = [(keys.numpy(), values.numpy()) for keys, values in pairs]
        return row.arrays

    def keep(self, slot: int, path: Sequence[int]) -> None:
        """Move the pending rows of ``path`` after the prefix, in that order; forget the others."""
        row = self._slot(slot)
        if list(path) != list(range(len(path))):
            source = torch.tensor([row.length + p for p in path], device=self.shape.device)
            target = slice(row.length, row.length + len(path))
            for held in (*row.keys, *row.values):
                held[:, target] = held[:, source]  # indexing copies first: no overlap
        row.length += len(path)
        forget_pending(row)

    def crop(self, slot: int, length: int) -> None:
        """Forget pending rows and every token after the first ``length``.

        A slot that keeps nothing gives its memory back.
        """
        row = self._slot(slot)
        row.length = min(row.length, length)
        forget_pending(row)
        if not length:
            self._release(row)

    def take(self, other: "KVCache", source: int, slot: int, length: int) -> None:
        """Copy the first ``length`` committed rows of a slot of any cache in place of this slot's."""
        row = self._slot(slot)
        self._reserve(row, length)
        for layer in range(self.shape.layers if length else 0):
            keys, values = other.rows(source, layer)
            row.keys[layer][:, :length] = keys[:, :length]
            row.values[layer][:, :length] = values[:, :length]
        row.length = length
        forget_pending(row)

    def rows(self, slot: int, layer: int) -> tuple[Tensor, Tensor]:
        """Committed keys and values [K, length, D], for audits."""
        row = self._slot(slot)
        return row.keys[layer][:, : row.length], row.values[layer][:, : row.length]

    @property
    def nbytes(self) -> int:
        """Bytes that all slots take."""
        return sum(t.nbytes for row in self._slots.values() for t in (*row.keys, *row.values))

    def reserve(self, slot: int, rows: int) -> None:
        """Take memory for this number of rows."""
        self._reserve(self._slot(slot), rows)

    def _slot(self, slot: int) -> CacheSlot:
        return self._slots.setdefault(slot, CacheSlot())

    def _release(self, row: CacheSlot) -> None:
        row.keys, row.values, row.arrays = [], [], []

    def _reserve(self, row: CacheSlot, rows: int) -> None:
        held = row.keys[0].shape[1] if row.keys else 0
        if rows <= held:
            return
        room = max(_FIRST_ROWS, 2 * held, rows)
        room += -room % BLOCK
        row.arrays = []
        shape = (self.shape.kv_heads, room, self.shape.head_dim)
        for store in (row.keys, row.values):
            old = list(store)
            store.clear()
            for layer in range(self.shape.layers):
                fresh = torch.zeros(shape, dtype=self.shape.dtype, device=self.shape.device)
                if old:
                    fresh[:, :held] = old[layer]
                store.append(fresh)


def append_pending(row: CacheSlot, parents: Sequence[int]) -> list[int]:
    """Record new pending rows; returns the ``ancestor_bits`` of each."""
    fresh = ancestor_bits(parents, row.seen)
    row.seen += fresh
    for parent in parents:
        row.depths.append(0 if parent < 0 else row.depths[parent] + 1)
    return fresh


def forget_pending(row: CacheSlot) -> None:
    """Keep the committed rows alone."""
    row.depths, row.seen = [], []
