"""The branches of a GGUF target's slots: which of llama.cpp's sequences holds which uncommitted rows.

A branch is a path of uncommitted rows from the prefix down, and shares the cells of what it has in
common with others. The slot's own sequence carries one path itself, so a chain needs no second
sequence and no copying. Branches that ran out of use lose their cells.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from engine.models.gguf.context import BatchRow, LlamaContext
from engine.models.gguf.slot import Slot

Pair = tuple[int, int]  # slot, row


@dataclass
class Pass:
    """Rows on their way into one decode."""

    rows: list[Pair] = field(default_factory=list)
    sequences: dict[Pair, list[int]] = field(default_factory=dict)
    outputs: list[Pair] = field(default_factory=list)

    @property
    def used(self) -> set[int]:
        """Sequences that get a row."""
        return {sequence for own in self.sequences.values() for sequence in own}


class Branches:
    """Of all slots; sequence s is slot s's own, and the others are given to branches."""

    def __init__(self, llama: LlamaContext, slots: Mapping[int, Slot]) -> None:
        """All sequences after the slots' own are free."""
        self.most_rows = llama.batch  # of one pass
        self._llama, self._slots = llama, slots
        self._free = list(range(llama.sequences - 1, len(slots) - 1, -1))

    def forget(self, slot: int) -> None:
        """All uncommitted rows of a slot, whose own sequence was cut already."""
        held = self._slots[slot]
        for branch in tuple(held.branches):
            if branch != slot:
                self._drop(slot, branch)
        held.branches.clear()
        for column in (held.tokens, held.parents, held.depths):
            column.clear()

    def give_back(self) -> bool:
        """The cells of all branches and those that are only held, if there are any of these.

        Rows of the branches are computed again where they are needed.
        """
        for slot, held in self._slots.items():
            for branch in tuple(held.branches):
                self._drop(slot, branch)
        if not self._llama.cache.cells.held:
            return False
        self._llama.cache.compact()
        return True

    def plan(self, left: Iterable[Pair], wanted: Set[Pair]) -> Pass:
        """The next pass over these rows: branch by branch, until the context's limits are reached."""
        run, left = Pass(), list(left)
        for slot in sorted({slot for slot, _ in left}):
            held = self._slots[slot]
            held.branches.setdefault(slot, [])
            for row in held.missing(row for own, row in left if own == slot):
                full = len(run.rows) == self.most_rows
                crowded = (slot, row) in wanted and len(run.outputs) == self._llama.outputs
                if full or crowded or not self._place(run, slot, row):
                    return run
                run.rows.append((slot, row))
                if (slot, row) in wanted:
                    run.outputs.append((slot, row))
        return run

    def batch_rows(self, run: Pass) -> list[BatchRow]:
        """The pass as llama.cpp takes it."""
        outputs, found = set(run.outputs), []
        for slot, row in run.rows:
            held, seen = self._slots[slot], run.sequences[slot, row]
            output = (slot, row) in outputs
            found.append(BatchRow(held.tokens[row], held.position(row), seen, output))
        return found

    def _drop(self, slot: int, branch: int) -> None:
        """Take the cells of one branch that no other branch shares."""
        held = self._slots[slot]
        del held.branches[branch]
        if branch == slot:
            self._llama.cache.remove(slot, len(held.committed))
        else:
            self._llama.cache.remove(branch)
            self._free.append(branch)

    def _place(self, run: Pass, slot: int, row: int) -> bool:
        """Give the row to the branch that ends at its parent, or to a new one; False: no room."""
        held = self._slots[slot]
        parent = held.parents[row]
        branch = held.ending_at(parent)
        if branch is None:
            source = held.through(parent)
            if source is None:  # the parent's cells were given away for this pass
                return False
            branch = self._fork(run, slot, source, parent)
            if branch is None:
                return False
        held.branches[branch].append(row)
        run.sequences[slot, row] = [branch]
        return True

    def _fork(self, run: Pass, slot: int, source: int, parent: int) -> int | None:
        """A new branch that sees what ``source`` sees down to ``parent``; None: all are in use."""
        if not self._free and not self._evict({source} | run.used):
            return None
        branch, held = self._free.pop(), self._slots[slot]
        path = held.branches[source][: held.depths[parent] + 1 if parent >= 0 else 0]
        cached = [row for row in path if (slot, row) not in run.sequences]
        self._llama.cache.copy(source, branch, 0, held.position(cached[-1] if cached else -1) + 1)
        for row in path[len(cached) :]:
            run.sequences[slot, row].append(branch)
        held.branches[branch] = path
        return branch

    def _evict(self, needed: set[int]) -> bool:
        """Free the oldest branch that is not needed."""
        for slot, held in self._slots.items():
            for branch in held.branches:
                if branch != slot and branch not in needed:
                    self._drop(slot, branch)
                    return True
        return False
