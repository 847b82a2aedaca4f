"""Sequences of a llama.cpp context with running states: taken back, saved, restored."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from engine.models.gguf.state_shape import CHECKPOINTS

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


@dataclass
class Conversation:
    """One slot's. The state may lack committed tokens, or include refused rows."""

    committed: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)  # rows that were run and not committed
    run: int = 0  # tokens, committed or not, whose state the sequence has
    reach: int = 0  # of them, how many of the last ones llama.cpp can take back
    sequence: int | None = None  # of llama.cpp's; None: it has none, being swapped out or empty
    swapped: Checkpoint | None = None  # cells and state of one that has none
    checkpoints: list[Checkpoint] = field(default_factory=list)  # the shortest first
    before: Checkpoint | None = None  # the latest pass, where that cannot be taken back
    read: bool = False  # a prompt was read since the last pass that scored

    @property
    def unread(self) -> Sequence[int]:
        """Committed tokens that the state does not have yet."""
        return self.committed[self.run :]

    @property
    def surplus(self) -> int:
        """Rows of the state that are not wanted."""
        return max(self.run - len(self.committed), 0)

    def nearest(self) -> Checkpoint | None:
        """The longest checkpoint of the committed tokens, or of fewer."""
        known = [*self.checkpoints, *filter(None, [self.before])]
        fitting = [one for one in known if one.length <= len(self.committed)]
        return max(fitting, key=lambda one: one.length, default=None)

    def cut(self, length: int) -> None:
        """Forget tokens after the first ``length``, and later checkpoints."""
        del self.committed[length:]
        self.checkpoints = [one for one in self.checkpoints if one.length <= length]
        if self.before and self.before.length > length:
            self.before = None

    def keep(self, made: Checkpoint) -> None:
        """Add a checkpoint; of too many one goes that is near another, and not one of the newest two."""
        self.checkpoints = [one for one in self.checkpoints if one.length != made.length]
        self.checkpoints = sorted([*self.checkpoints, made], key=lambda one: one.length)
        if len(self.checkpoints) > CHECKPOINTS:
            starts = [0, *(one.length for one in self.checkpoints)]
            gaps = {at: starts[at + 1] - starts[at] for at in range(len(self.checkpoints) - 2)}
            del self.checkpoints[min(gaps, key=gaps.__getitem__)]

    def checkpoint_at(self, length: int) -> bool:
        """Whether there is one of exactly ``length`` tokens."""
        return any(one.length == length for one in self.checkpoints)
