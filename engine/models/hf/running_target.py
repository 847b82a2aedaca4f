"""The target over a transformers model with running states: accepted rows' states are taken over late.

A pass leaves the states that it began with as they were. Those after its accepted rows are taken over
when these are committed, so a refused draft changes nothing and nothing is read twice.
Checkpoints at the ends of what was read, and one within an answer, let a conversation begin again
there: they are states that were there anyway, and cost memory alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from typing_extensions import override

from engine.models.hf.exact import READ_BLOCK, ExactHfTarget
from engine.models.hf.model import PassResult
from engine.models.hf.running_cache import RunningCache, State
from engine.models.hf.target import CroppedHfTarget, HeldRows
from engine.platform.device_memory import out_of_memory_as_ours
from engine.speculation.common_prefix import common_prefix

CHECKPOINTS = 3  # at the ends of what was read
APART = 64  # tokens of an answer between its checkpoint and the next


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The states after the first ``length`` tokens."""

    length: int
    states: tuple[State, ...]
    begun: "Checkpoint | None" = None  # where the block begins of which the last tokens are a part


@dataclass
class RunningRows(HeldRows):
    """A slot, with the states that it may go back to."""

    reads: bool = False  # whether a prompt is read just now
    read: list[Checkpoint] = field(default_factory=list)
    answer: list[Checkpoint] = field(default_factory=list)  # one, after some of its tokens
    latest: list[Checkpoint] = field(default_factory=list)  # after each token of the last pass

    def now(self) -> Checkpoint:
        """After all committed tokens."""
        return next(
            (one for one in self.read if one.length == len(self.committed)),
            Checkpoint(len(self.committed), self.cache.states),
        )

    def nearest(self, length: int) -> Checkpoint | None:
        """The last one of at most the first ``length`` tokens."""
        blocks = [one.begun for one in self.read if one.begun]
        known = [*blocks, *self.read, *self.answer, *self.latest, self.now()]
        fits = [one for one in known if 0 < one.length <= length]
        return max(fits, key=lambda one: one.length, default=None)

    def go_to(self, point: Checkpoint) -> None:
        """Forget all tokens after a checkpoint."""
        self.cache.go_to(point.states)
        self.cache.cut(point.length)
        del self.committed[point.length :]
        self.latest = []
        self.read = [one for one in self.read if one.length <= point.length]
        self.answer = [one for one in self.answer if one.length <= point.length]

    def note(self, latest: list[Checkpoint]) -> None:
        """Tokens were committed, with these states after them."""
        self.latest = latest
        known = max((one.length for one in (*self.read, *self.answer)), default=0)
        if latest and not self.reads and latest[-1].length >= known + APART:
            self.answer = latest[-1:]

    def end_reading(self, begun: Checkpoint | None) -> None:
        """A checkpoint after what was read."""
        self.read = [*self.read, Checkpoint(len(self.committed), self.cache.states, begun)]
        self.read, self.answer = self.read[-CHECKPOINTS:], []


class RunningTarget(CroppedHfTarget):
    """One whose layers keep running states, some of them or all."""

    def cache(self, slot: int) -> RunningCache:
        """What a slot holds."""
        held: RunningCache = self._slot(slot).cache
        return held

    @override
    @torch.inference_mode()
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens unjudged: a prompt chunk. When it is aborted the slot is as before."""
        row = self._slot(slot)
        before = len(row.committed)
        row.reads = True
        try:
            super().feed(slot, tokens)
        finally:
            row.reads = False
        if len(row.committed) > before:
            row.end_reading(None)

    @override
    @torch.inference_mode()
    def crop(self, slot: int, length: int) -> None:
        """Forget uncommitted rows and tokens after the first ``length``, back to a checkpoint."""
        row = self._slot(slot)
        self._take_back(row, 0)
        if length >= len(row.committed):
            return
        point = row.nearest(length)
        if point is None:
            self._slots[slot] = self._fresh()
        else:
            row.go_to(point)

    @override
    @torch.inference_mode()
    def share(self, source: int, slot: int, length: int) -> None:
        """Take over another slot's tokens up to a checkpoint, if that is more than there are."""
        giver, held = self._slot(source), self._slot(slot)
        point = giver.nearest(length)
        if point is None or point.length <= common_prefix(held.committed, giver.committed):
            return
        row = self._fresh()
        with out_of_memory_as_ours(self.model.device):
            row.cache.begin_as(giver.cache, point.length)
        row.cache.go_to(point.states)
        row.committed, row.read = giver.committed[: point.length], [point]
        self._slots[slot] = row

    @override
    def _slot(self, slot: int) -> RunningRows:
        row = super()._slot(slot)
        assert isinstance(row, RunningRows)
        return row

    @override
    def _fresh(self) -> RunningRows:
        return RunningRows(RunningCache(self.model.config))

    @override
    def _take_back(self, row: HeldRows, kept: int, path: Sequence[int] = ()) -> None:
        assert isinstance(row, RunningRows)
        if not row.pending:
            return
        before, latest = len(row.committed), []
        for at, node in enumerate(path):
            if states := row.cache.states_after(node):
                latest.append(Checkpoint(before + at + 1, states))
        row.cache.take(path)
        super()._take_back(row, kept, path)
        if path:
            row.note(latest)

    @override
    def _run(
        self,
        row: HeldRows,
        tokens: Sequence[int],
        parents: Sequence[int],
        *,
        last: int | None = None,
        hidden: bool = False,
    ) -> PassResult:
        self._expect(row, len(row.pending), parents)
        return super()._run(row, tokens, parents, last=last, hidden=hidden)

    @override
    def _run_straight(
        self, row: HeldRows, tokens: Sequence[int], last: int, *, hidden: bool
    ) -> PassResult:
        at = len(row.committed) + len(row.pending) - len(tokens)
        return self.model.run(tokens, row.cache, at, last=last, hidden=hidden)

    def _expect(self, row: HeldRows, first: int, parents: Sequence[int]) -> None:
        """Say which rows come next, the first of them behind so many uncommitted ones."""
        assert isinstance(row, RunningRows)
        row.latest = []  # memory has room for one pass's states
        at_once = row.reads and (self.abilities.chunks or not (row.committed or first))
        row.cache.expect(first, len(parents), None if at_once else list(parents))


class ExactRunningTarget(ExactHfTarget, RunningTarget):
    """One whose passes have one shape, so that rows with a draft have the bits of those without.

    What is read again begins at the block that was read in part, as if it had been read at once.
    """

    @override
    @torch.inference_mode()
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        row = self._slot(slot)
        self._take_back(row, 0)
        point, again = row.now().begun, list[int]()
        if point is not None:
            again = row.committed[point.length :]
            row.go_to(point)
        start = row.now()
        text = [*again, *tokens]
        RunningTarget.feed(self, slot, text)
        if len(row.committed) == start.length + len(text):
            whole = start.length + len(text) - len(text) % READ_BLOCK
            known = [start, *row.latest]
            row.read.pop()
            row.end_reading(next((one for one in known if one.length == whole), None))

    @override
    def _fresh(self) -> RunningRows:
        held = super()._fresh()
        assert isinstance(held, RunningRows)
        return held

    @override
    def _will_run(self, row: HeldRows, at: int, count: int) -> None:
        first = at - len(row.committed)
        self._expect(row, first, range(first - 1, first - 1 + count))
