"""StaticCache: keys and values whose addresses stay, so that recorded passes can be replayed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from engine.decoder.kv_cache import CacheSlot, KVCache, append_pending
from engine.speculation.tree import bit_rows

FIRST_ROWS = (
    8192  # of a slot; longer conversations move to twice as many: passes are recorded again
)
SPARE = 512  # rows after the context, for a tree and its padding


@dataclass(frozen=True, slots=True)
class Placed:
    """New rows of a slot: written from ``start`` on, ``positions`` [n], ``seen`` bool [n, m].

    ``seen``: which of the m rows after the first ``length`` each new row sees.
    """

    length: int
    start: int
    positions: tuple[int, ...]
    seen: NDArray[np.bool_]


class StaticCache(KVCache):
    """A KVCache that allocates a whole conversation at once, and moves only when it outgrows that."""

    def append(self, slot: int, parents: Sequence[int], room: int) -> Placed:
        """``place`` without a mask on the device; at least ``room`` rows are there from ``start``."""
        row = self._slot(slot)
        before = len(row.depths)
        start = row.length + before
        self._reserve(row, start + max(room, len(parents)))
        seen = bit_rows(append_pending(row, parents), before + len(parents))
        positions = tuple(row.length + depth for depth in row.depths[before:])
        return Placed(row.length, start, positions, seen)

    def layers(self, slot: int) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of every layer, [K, T, D] each, unused rows included."""
        row = self._slot(slot)
        return row.keys, row.values

    @override
    def _release(self, row: CacheSlot) -> None:
        """Keep the memory: recorded passes write to these addresses."""

    @override
    def _reserve(self, row: CacheSlot, rows: int) -> None:
        """The old rows are replaced only when all new ones are there: memory may run out half way."""
        held = row.keys[0].shape[1] if row.keys else 0
        if rows <= held:
            return
        least = min(self.shape.rows, FIRST_ROWS) + SPARE
        room = max(least, rows, min(2 * held, self.shape.rows + SPARE))
        shape = (self.shape.kv_heads, room, self.shape.head_dim)
        fresh = [
            [
                torch.zeros(shape, dtype=self.shape.dtype, device=self.shape.device)
                for _ in range(self.shape.layers)
            ]
            for _ in range(2)
        ]
        for new, old in zip(fresh, (row.keys, row.values), strict=True):
            for wide, narrow in zip(new, old, strict=False):
                wide[:, :held] = narrow
        row.keys[:], row.values[:] = fresh
