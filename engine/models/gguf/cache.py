"""The cache of one llama.cpp context: what its sequences see, saved, restored, moved together."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.models.gguf.cells import Cells

PADDING = 256  # llama.cpp reads a cache in runs of this many cells
OWN_SEQUENCES = 2  # of the cache's: one holds cells, one carries what is moved


class Piece(NamedTuple):
    """Bytes of some consecutive positions of a sequence, and how many these are."""

    data: NDArray[np.uint8]
    positions: int


@dataclass(frozen=True, slots=True)
class SavedCells:
    """Consecutive positions of a sequence, in pieces."""

    pieces: tuple[Piece, ...]

    @property
    def count(self) -> int:
        """Positions."""
        return sum(piece.positions for piece in self.pieces)

    def __len__(self) -> int:
        """Bytes."""
        return sum(len(piece.data) for piece in self.pieces)


class LlamaCache:
    """Sequence operations; every sequence's cells stay in the order of its positions."""

    def __init__(
        self, api: ModuleType, context: object, size: int, first_own: int, window: int = 0
    ) -> None:
        """A cache of ``size`` cells; sequences from ``first_own`` on are its own.

        Some layers see only the last ``window`` tokens; 0: there are none.
        """
        self._window = window
        self._api, self._context = api, context
        self._memory = api.llama_get_memory(context)
        self._size, self._holder, self._mover = size, first_own, first_own + 1
        self.cells = Cells()

    @property
    def room(self) -> int:
        """Rows that can still be decoded."""
        return self._size - self.cells.top

    def took(self, sequences: Sequence[int]) -> None:
        """A row was decoded for these sequences."""
        self.cells.add(sequences)

    @property
    def crowded(self) -> bool:
        """Whether more cells are held than seen: a pass reads both."""
        return self.cells.held > max(self.cells.seen, PADDING)

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """``target`` also sees the cells of ``source`` at positions [start, stop)."""
        self.cells.copy(source, target, start, stop)
        self._see(source, target, start, stop)

    def remove(self, sequence: int, start: int = 0) -> None:
        """The sequence no longer sees positions from ``start`` on."""
        for gap in self.cells.remove(sequence, start):
            self._see(sequence, self._holder, gap.start, gap.stop)
        self.drop(sequence, start)
        if self.cells.held and not self.cells.seen:
            self.drop(self._holder)
            self.cells.clear()

    def drop(self, sequence: int, start: int = 0) -> None:
        """``remove`` of rows that were not taken note of: dummy ones, and those of a failed pass."""
        self._api.llama_memory_seq_rm(self._memory, sequence, start or -1, -1)

    def save(self, sequence: int) -> SavedCells:
        """The cells of a sequence; they stay as they are."""
        return self._part(sequence, 0)

    def restore(self, sequence: int, saved: SavedCells) -> bool:
        """Replace a sequence's cells by saved ones; False where there is no room: it has none then."""
        self.remove(sequence)
        if saved.count > self.room:
            return False
        if self._append(sequence, 0, saved):
            return True
        self.remove(sequence)
        return False

    def compact(self) -> None:
        """Move what sequences see together, in the same order; held cells are free then."""
        parts: list[tuple[int, int, int, SavedCells]] = []
        for sequence in self.cells.sequences():
            source, kept = self.cells.shared(sequence, [part[0] for part in parts])
            parts.append((sequence, source, kept, self._part(sequence, kept)))
        self._api.llama_memory_clear(self._memory, False)  # noqa: FBT003 - C knows no names
        self.cells.clear()
        for sequence, source, kept, part in parts:
            self.copy(source, sequence, 0, kept)
            if not self._append(sequence, kept, part):
                raise AssertionError(
                    f"{part.count} cells found no room in a cache with {self.room}"
                )

    def clear(self) -> None:
        """Empty every cell and overwrite its bytes."""
        self._api.llama_memory_clear(self._memory, True)  # noqa: FBT003 - C knows no names
        self.cells.clear()

    def _part(self, sequence: int, start: int) -> SavedCells:
        """What a sequence sees from position ``start`` on.

        llama.cpp leaves out cells that no later token of the sequence sees in the layers with windows, though a
        shorter conversation needs them: no piece is longer than a window.
        """
        stop, pieces = len(self.cells.of(sequence)), []
        while start < stop:
            end = min(stop, start + self._window - start % self._window) if self._window else stop
            self._see(sequence, self._mover, start, end)
            pieces.append(Piece(self._bytes(self._mover), end - start))
            self.drop(self._mover)
            start = end
        return SavedCells(tuple(pieces))

    def _append(self, sequence: int, start: int, part: SavedCells) -> bool:
        """Whether all of it found cells, for positions from ``start`` on."""
        for data, count in part.pieces:
            if not self._put(self._mover, data):
                return False
            self._see(self._mover, sequence, start, start + count)
            self.drop(self._mover)
            self._note(sequence, count)
            start += count
        return True

    def _note(self, sequence: int, count: int) -> None:
        for _ in range(count):
            self.cells.add((sequence,))

    def _see(self, source: int, target: int, start: int, stop: int) -> None:
        self._api.llama_memory_seq_cp(self._memory, source, target, start, stop)

    def _bytes(self, sequence: int) -> NDArray[np.uint8]:
        size = self._api.llama_state_seq_get_size(self._context, sequence)
        data = np.empty(size, np.uint8)
        self._api.llama_state_seq_get_data(self._context, _first_byte(data), size, sequence)
        return data

    def _put(self, sequence: int, data: NDArray[np.uint8]) -> bool:
        place = _first_byte(data)
        return bool(self._api.llama_state_seq_set_data(self._context, place, len(data), sequence))


def _first_byte(data: NDArray[np.uint8]) -> object:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
