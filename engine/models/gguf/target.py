"""The GGUF target: llama.cpp scores trees, one of its sequences for every branch.

Sequence ids of the context: slot s is sequence s and holds the committed tokens; the others are
branches (``branches.py``).

A tree may have more tips than there are free branches, or more rows than one pass takes. Then it is
scored in several passes, and branches that ran out of use lose their cells; a row whose cells are
gone is computed again when something hangs below it or when it is committed. So any tree is
scored right, and only the time depends on its shape.

llama.cpp reads every cell up to the last one in use, in every pass. So an idle conversation is
swapped out: the bytes of its cells move to RAM, and it gets cells again when it continues.
"""

from collections.abc import Callable, Sequence, Set
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from engine.errors import Aborted, EngineError
from engine.interfaces.target import Capability, Grown, Rows, Scores
from engine.models.gguf.branches import Branches, Pass
from engine.models.gguf.cache import OWN_SEQUENCES, SavedCells
from engine.models.gguf.chain_targets import RecurrentTarget, WindowedTarget
from engine.models.gguf.checkpointed_target import CheckpointedTarget
from engine.models.gguf.context import MOST_OUTPUTS, BatchRow, CacheFull, LlamaContext
from engine.models.gguf.model import LlamaModel
from engine.models.gguf.slot import GgufTarget, Slot
from engine.platform.threads import one_torch_thread
from engine.request import ModelSpec
from engine.speculation.common_prefix import common_prefix
from engine.speculation.tree import DraftTree

T = TypeVar("T")
Array = NDArray[np.float32]
BRANCHES = 64  # tips of trees held at once, of all slots together


class LlamaCppTarget(GgufTarget):
    """A target over one GGUF file."""

    offers = frozenset({Capability.TREE})
    most_slots = MOST_OUTPUTS - OWN_SEQUENCES - 2  # two branches are sequences, too

    def __init__(
        self, spec: ModelSpec, branches: int = BRANCHES, model: LlamaModel | None = None
    ) -> None:
        """Load the file; raises ModelUnusable."""
        self._check(spec)
        self.max_slots = min(spec.slots + spec.warm, self.most_slots)
        self.llama = LlamaContext(spec, self.max_slots + max(branches, 2), model)
        self._take_over(self.llama)
        self.shared_rows = self.llama.cells - MOST_OUTPUTS  # draft trees need the others
        self.sums_alike = self.reads_alike = self.llama.exact
        self._slots: dict[int, Slot] = {slot: Slot() for slot in range(self.max_slots)}
        self._branches = Branches(self.llama, self._slots)
        self._swapped: dict[int, SavedCells] = {}  # slot -> its committed tokens' cells

    @property
    def swapped(self) -> dict[int, int]:
        """Slots that are swapped out, with the bytes of RAM that each takes."""
        return {slot: len(state) for slot, state in self._swapped.items()}

    @override
    def limit_rows(self, rows: int) -> None:
        self._branches.most_rows = min(rows, self.llama.batch)
        self.reads_alike = self.llama.exact and self._branches.most_rows == self.llama.batch

    @override
    def pending(self, slot: int) -> int:
        return len(self._slots[slot].tokens)

    @override
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens; no logits are computed. An aborted call leaves the slot as it was."""
        assert slot not in self._swapped, "a slot that is swapped out has no cells"
        self.crop(slot, self.length(slot))
        self._tidy()
        before = self.length(slot)
        try:
            read = partial(self.llama.read, aborted=self._abort)
            self._extend(slot, tokens, read, self.llama.batch)
        except Aborted:
            self.llama.cache.remove(slot, before)
            del self._slots[slot].committed[before:]

    @override
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Logits [N, V] float32 of every node of each tree, after its slot's prefix."""
        assert self._swapped.keys().isdisjoint(slots), "a slot that is swapped out has no cells"
        for slot in slots:
            if self._slots[slot].tokens:
                self.crop(slot, self.length(slot))
        self._tidy()
        if len(slots) == len(trees[0].tokens) == 1:
            return [Scores(self._alone(slots[0], trees[0].tokens[0]))]
        pairs = zip(slots, trees, strict=True)
        return [
            Scores(part) for part in self._run([Rows(s, t.tokens, t.parents) for s, t in pairs])
        ]

    @override
    def decode(self, slot: int, tokens: Sequence[int]) -> Array:
        held = self._slots[slot]
        before = len(held.committed)
        if held.tokens:
            self.crop(slot, before)
        self._tidy()
        try:
            row = self._last_row(slot, tokens)
        except EngineError:
            self.llama.cache.remove(slot, before)
            del held.committed[before:]
            raise
        return row

    def _last_row(self, slot: int, tokens: Sequence[int]) -> Array:
        """Commit tokens; the logits [1, V] of the last one."""
        committed, read = self._slots[slot].committed, partial(self.llama.read, aborted=self._abort)
        if (early := len(tokens) - self.llama.batch) > 0:
            self._extend(slot, tokens[:early], read, self.llama.batch)
            tokens = tokens[early:]
        if len(tokens) == 1:
            attempt = partial(self.llama.decode_one, tokens[0], len(committed), slot)
        else:
            places = range(len(committed), len(committed) + len(tokens))
            rows = [
                BatchRow(token, at, (slot,), output=at == places[-1])
                for at, token in zip(places, tokens, strict=True)
            ]
            attempt = partial(read, rows)
        row = self._with_room({slot}, attempt)
        committed += tokens
        return row

    @override
    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        """Run more rows after the uncommitted ones of several slots.

        ``hidden`` is empty, [n, 0]: llama.cpp would have to compute logits for every row to give it.
        """
        assert all(rows.slot not in self._swapped for rows in batch), (
            "a slot that is swapped out has no cells"
        )
        parts = [torch.from_numpy(part) for part in self._run(batch)]
        return [Grown(part, torch.empty(len(part), 0)) for part in parts]

    @override
    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keep these uncommitted rows, a path from the prefix down; forget the others."""
        held = self._slots[slot]
        before, path = len(held.committed), list(path)
        if path == held.branches.get(slot):  # plain, or a whole chain: every cell is in its place
            for row in path:
                held.committed.append(held.tokens[row])
            self._branches.forget(slot)
            return
        best = max(held.branches, key=lambda b: common_prefix(held.branches[b], path), default=slot)
        kept = common_prefix(held.branches.get(best, []), path)
        own = common_prefix(held.branches.get(slot, []), path)
        if own < len(held.branches.get(slot, [])):
            self.llama.cache.remove(slot, before + own)
        if kept > own:
            self.llama.cache.copy(best, slot, before + own, before + kept)
        tokens = [held.tokens[row] for row in path]
        held.committed += tokens[:kept]
        self._branches.forget(slot)
        if kept < len(path):  # their cells were given to other branches
            self._extend(slot, tokens[kept:], self.llama.decode, self._branches.most_rows)

    @override
    def crop(self, slot: int, length: int) -> None:
        held = self._slots[slot]
        if slot in self._swapped:
            del held.committed[length:]
            if not held.committed:
                del self._swapped[slot]
            return
        if not held.tokens and len(held.committed) <= length:
            return  # the usual case in every step
        if len(held.committed) > length or held.branches.get(slot):
            self.llama.cache.remove(slot, min(length, len(held.committed)))
        self._branches.forget(slot)
        del held.committed[length:]

    @override
    def clear(self) -> None:
        """Forget everything, the bytes too.

        A masked cell counts zero times its value, and zero times NaN is NaN in every conversation.
        """
        for slot in self._slots:
            self.crop(slot, 0)
        self.llama.cache.clear()

    @override
    def share(self, source: int, slot: int, length: int) -> None:
        """See the first ``length`` committed tokens of another slot, in place of all that was here."""
        self.crop(slot, 0)
        self._slots[slot].committed += self._slots[source].committed[:length]
        if source in self._swapped:
            self._bring_back(source, slot)
        else:
            self.llama.cache.copy(source, slot, 0, length)

    @override
    def swap_out(self, slot: int) -> None:
        if slot not in self._swapped and self._slots[slot].committed:
            self.crop(slot, self.length(slot))
            self._swapped[slot] = self.llama.cache.save(slot)
            self.llama.cache.remove(slot)

    @override
    def swap_in(self, slot: int) -> None:
        if slot in self._swapped:
            self._bring_back(slot, slot)
            del self._swapped[slot]

    def _bring_back(self, source: int, slot: int) -> None:
        """Cells for the slot's committed tokens, a prefix of ``source``'s that were swapped out; or none."""
        held, saved = self._slots[slot], self._swapped[source]
        if saved.count > self.llama.cache.room:
            self._branches.give_back()
        if self.llama.cache.restore(slot, saved):
            self.llama.cache.remove(slot, len(held.committed))
        else:
            held.committed.clear()

    def _extend(
        self,
        slot: int,
        tokens: Sequence[int],
        decode: Callable[[Sequence[BatchRow]], object],
        most: int,
    ) -> None:
        """Commit tokens in passes of at most ``most`` rows."""
        committed = self._slots[slot].committed
        for start in range(0, len(tokens), most):
            part = tokens[start : start + most]
            rows = [BatchRow(t, at, (slot,)) for at, t in enumerate(part, len(committed))]
            self._with_room({slot}, partial(decode, rows))
            committed += part

    def _alone(self, slot: int, token: int) -> Array:
        """Logits [1, V] of a plain pass's row; planning it would take too long."""
        held = self._slots[slot]
        held.tokens.append(token)
        held.parents.append(-1)
        held.depths.append(0)
        held.branches[slot] = [0]
        try:
            return self.llama.decode_one(token, len(held.committed), slot).copy()
        except CacheFull:  # others make room
            self._branches.forget(slot)
            return self._run([Rows(slot, [token], [-1])])[0]
        except EngineError:
            self.crop(slot, len(held.committed))
            raise

    def _run(self, batch: Sequence[Rows]) -> list[Array]:
        """Logits of the wanted rows of every slot, in as few passes as the limits allow."""
        slots = {rows.slot for rows in batch}
        fresh = [[(r.slot, row) for row in self._slots[r.slot].add(r)] for r in batch]
        wanted = [rows[-(r.last or len(rows)) :] for r, rows in zip(batch, fresh, strict=True)]
        left = {pair for rows in fresh for pair in rows}
        wanted_rows = {pair for rows in wanted for pair in rows}
        parts: list[Array] = []
        places: dict[tuple[int, int], int] = {}
        while left:
            run, part = self._pass(slots, partial(self._next_pass, left, wanted_rows))
            parts.append(part)
            places |= {pair: len(places) + i for i, pair in enumerate(run.outputs)}
            left -= set(run.rows)
            wanted_rows -= set(run.outputs)
        return _in_order(parts, [[places[pair] for pair in rows] for rows in wanted])

    def _next_pass(
        self, left: set[tuple[int, int]], wanted_rows: set[tuple[int, int]]
    ) -> tuple[Pass, Array]:
        """The next pass and the logits of its outputs."""
        run = self._branches.plan(left, wanted_rows)
        return run, self.llama.decode(self._branches.batch_rows(run))

    def _pass(self, slots: set[int], attempt: Callable[[], T]) -> T:
        """Run it; the slots' drafts are forgotten when it fails."""
        try:
            return self._with_room(slots, attempt)
        except EngineError:
            for slot in slots:
                self.crop(slot, self.length(slot))
            raise

    def _with_room(self, slots: Set[int], attempt: Callable[[], T]) -> T:
        """Run it; where the cache is full, once more with more room, until there is none to give."""
        while True:
            try:
                return attempt()
            except CacheFull:
                if not self._made_room(slots):
                    raise

    def _made_room(self, slots: Set[int]) -> bool:
        """Give back cells that are only held, or else forget the longest idle conversation.

        A conversation that continues later finds a shorter prefix cached, and is fed the rest again.
        """
        if not self._branches.give_back():
            here = self._slots.keys() - self._swapped.keys() - slots
            idle = [slot for slot in here if self.length(slot)]
            if not idle:
                return False
            self.crop(max(idle, key=self.length), 0)
            self._branches.give_back()
        return True

    def _tidy(self) -> None:
        """Before a pass: one reads held cells too, and a tree must find room."""
        cache = self.llama.cache
        if cache.crowded or (cache.room < MOST_OUTPUTS and cache.cells.held):
            self._branches.give_back()


def _in_order(parts: list[Array], places: list[list[int]]) -> list[Array]:
    """Rows [n, V] of every request; ``places`` counts through all ``parts``."""
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(places) == 1 and places[0] == list(range(len(whole))):
        return [whole]
    flat = [place for own in places for place in own]
    if flat != list(range(len(flat))):
        whole = whole[flat]
    return np.split(whole, list(accumulate(len(own) for own in places))[:-1])


def load(spec: ModelSpec) -> LlamaCppTarget | CheckpointedTarget:
    """The target of a spec, with torch limited to one thread; raises ModelUnusable."""
    one_torch_thread()
    model = LlamaModel(spec)
    if model.keeps_state:
        return RecurrentTarget(spec, model)
    if spec.windowed and model.window:
        return WindowedTarget(spec, model)
    return LlamaCppTarget(spec, model=model)
