"""Sequences of a llama.cpp context with running states: taken back, saved, restored."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

_WHOLE, _STATE = 0, 1  # llama.cpp's flags: with the cells of attention, or the running state alone
_UNKNOWN = 1 << 30


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A sequence's running state after its first ``length`` tokens; ``whole`` with their cells."""

    length: int
    data: NDArray[np.uint8]
    whole: bool = False

    def __len__(self) -> int:
        """Bytes."""
        return len(self.data)


class RecurrentCache:
    """What llama.cpp does with a sequence; who calls knows how long each is."""

    room = _UNKNOWN  # llama.cpp itself refuses a row for which a sequence has no cell

    def __init__(self, api: ModuleType, context: object) -> None:
        self._api, self._context = api, context
        self._memory = api.llama_get_memory(context)

    def took(self, sequences: Sequence[int]) -> None:
        """A row was decoded for these sequences: nothing is counted here."""

    def take_back(self, sequence: int, length: int) -> bool:
        """Keep the first ``length`` tokens; False where the state cannot go back: nothing changed.

        Right only for as many rows as the sequence's last pass had after its first one, and once.
        """
        return bool(self._api.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def remove(self, sequence: int) -> None:
        """Forget a sequence."""
        self._api.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def save(
        self, sequence: int, length: int, *, whole: bool, over: Checkpoint | None = None
    ) -> Checkpoint | None:
        """What there is of a sequence of ``length`` tokens; None where llama.cpp cannot give it.

        Written ``over`` another one where that is as large: fresh memory takes longer than copying.
        """
        flags = _WHOLE if whole else _STATE
        size = self._api.llama_state_seq_get_size_ext(self._context, sequence, flags)
        data = over.data if over and len(over) == size else np.empty(size, np.uint8)
        written = self._api.llama_state_seq_get_data_ext(
            self._context, _first_byte(data), size, sequence, flags
        )
        return Checkpoint(length, data, whole) if written == size and size else None

    def restore(self, sequence: int, saved: Checkpoint) -> bool:
        """Bring a sequence to what was saved; False where llama.cpp cannot: it is empty then.

        Without cells, the sequence must still have those of the checkpoint's tokens.
        """
        flags = _WHOLE if saved.whole else _STATE
        read = self._api.llama_state_seq_set_data_ext(
            self._context, _first_byte(saved.data), len(saved), sequence, flags
        )
        if read and self.take_back(sequence, saved.length):
            return True
        self.remove(sequence)
        return False

    def clear(self) -> None:
        """Empty everything and overwrite its bytes."""
        self._api.llama_memory_clear(self._memory, True)  # noqa: FBT003 - C knows no names


def _first_byte(data: NDArray[np.uint8]) -> object:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
