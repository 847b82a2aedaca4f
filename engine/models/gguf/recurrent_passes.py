"""Passes of a context with running states: which slots share one, and how far each state is after it.

llama.cpp moves states only in passes of several sequences, and moves just the newest: not those of the
rows before, to which a draft may be taken back. So one pass of several slots comes first, and every
other slot has one of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.models.gguf.context import BatchRow
from engine.models.gguf.recurrent_cache import Conversation
from engine.models.gguf.recurrent_context import RecurrentContext

Array = NDArray[np.float32]
Aborted = Callable[[], bool]


class Part(NamedTuple):
    """What one slot has in a pass, after the committed tokens that its state does not have yet."""

    slot: int
    tokens: Sequence[int]
    outputs: int  # of the last tokens


class RecurrentPasses:
    """Runs rows of conversations that have a sequence."""

    def __init__(
        self,
        llama: RecurrentContext,
        slots: Mapping[int, Conversation],
        taken_back: Callable[[Sequence[int]], object],
    ) -> None:
        """``taken_back`` is called with the slots of a pass of several, before it."""
        self._llama, self._slots, self._taken_back = llama, slots, taken_back
        self.most_rows = llama.batch  # of one pass, but for prompts

    @property
    def widest(self) -> int:
        """Rows of a pass with logits for all of them."""
        return int(min(self.most_rows, self._llama.outputs))

    def plain(self, slot: int, token: int) -> Array:
        """Logits [1, V] of a plain pass's row, which the next one overwrites; planning takes too long."""
        held = self._slots[slot]
        assert held.sequence is not None
        self._make_room(held, 1)
        row = self._llama.decode_one(token, held.run, held.sequence)
        held.run += 1
        held.reach = self._llama.reach(held.sequence, held.run, 1)
        return row

    def run(self, parts: Sequence[Part], aborted: Aborted | None = None) -> list[Array]:
        """The logits [outputs, V] of each part; one over a prompt can be ``aborted``."""
        rows = {part.slot: self._rows(part) for part in parts}
        together = self._together(rows)
        found: dict[int, Array] = {}
        if len(together) > 1:
            self._taken_back(together)
            batch = [row for slot in together for row in rows[slot]]
            logits = self._decode(together, batch, aborted)
            ends = np.cumsum([sum(row.output for row in rows[slot]) for slot in together])
            found |= zip(together, np.split(logits, ends[:-1]), strict=True)
        for slot, own in rows.items():
            if slot not in found:
                found[slot] = self._alone(slot, own, aborted)
        return [found[part.slot] for part in parts]

    def _rows(self, part: Part) -> list[BatchRow]:
        held = self._slots[part.slot]
        assert held.sequence is not None
        tokens = [*held.unread, *part.tokens]
        first, seen = len(tokens) - part.outputs, (held.sequence,)
        return [
            BatchRow(token, held.run + at, seen, output=at >= first)
            for at, token in enumerate(tokens)
        ]

    def _together(self, rows: Mapping[int, Sequence[BatchRow]]) -> list[int]:
        """The most slots of equally many rows whose sequences follow each other, and that fit a pass."""
        if len(rows) < 2:
            return []
        in_order = sorted(rows, key=lambda slot: self._slots[slot].sequence or 0)

        def kind(pair: tuple[int, int]) -> tuple[int, int]:
            at, slot = pair
            return (self._slots[slot].sequence or 0) - at, len(rows[slot])

        runs = [[slot for _, slot in run] for _, run in groupby(enumerate(in_order), key=kind)]
        return max((run[: self.widest // max(len(rows[run[0]]), 1)] for run in runs), key=len)

    def _alone(self, slot: int, rows: Sequence[BatchRow], aborted: Aborted | None) -> Array:
        most = self.widest if aborted is None else self._llama.batch
        parts = [rows[at : at + most] for at in range(0, len(rows), most)]
        return np.concatenate([self._decode([slot], part, aborted) for part in parts])

    def _decode(
        self, slots: Sequence[int], rows: Sequence[BatchRow], aborted: Aborted | None
    ) -> Array:
        """One pass of equally many rows of each slot."""
        decode = self._llama.decode
        if aborted is not None:
            decode = partial(self._llama.read, aborted=aborted)
        each = len(rows) // len(slots)
        running = [self._slots[slot] for slot in slots]
        for held in running:
            self._make_room(held, each)
        logits = decode(rows)
        for held in running:
            assert held.sequence is not None
            held.run += each
            held.reach = self._llama.reach(held.sequence, held.run, each)
        return logits

    def _make_room(self, held: Conversation, rows: int) -> None:
        assert held.sequence is not None
        if made := self._llama.make_room(held.sequence, held.run, rows):
            held.keep(made)
