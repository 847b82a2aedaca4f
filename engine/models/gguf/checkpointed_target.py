"""What GGUF targets have in common whose conversations begin again at checkpoints: states, and windows alone.

Neither is a list of rows: what a pass added cannot simply be cut off. Where llama.cpp keeps what the last
rows need, a refused draft is taken back at once. Elsewhere the state is saved before a pass with a draft,
brought back, and the accepted tokens are read again in front of the next pass. Checkpoints after a prompt
and within it let a conversation begin again there.

Every conversation that runs has a sequence of its own; the others are swapped out, bytes in RAM.
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from engine.errors import Aborted, EngineError
from engine.interfaces.target import Capability, Scores
from engine.models.gguf.context import MOST_OUTPUTS
from engine.models.gguf.model import LlamaModel
from engine.models.gguf.recurrent_cache import Conversation
from engine.models.gguf.recurrent_context import RecurrentContext
from engine.models.gguf.recurrent_passes import Part, RecurrentPasses
from engine.models.gguf.slot import GgufTarget
from engine.models.gguf.state_shape import CHECKPOINTS
from engine.request import ModelSpec
from engine.speculation.common_prefix import common_prefix
from engine.speculation.tree import DraftTree

Array = NDArray[np.float32]
READ_AGAIN = 64  # tokens that a pass reads again unasked; more are left to who reads prompts
ALONE = (
    "this processor rounds several rows of these weights otherwise than one; exact = false in "
    "config.toml lets drafts be verified all the same"
)


class CheckpointedTarget(GgufTarget):
    """What the targets over states and over windows have in common."""

    context_of: type[RecurrentContext]
    chains: str  # why drafts are no trees
    marks_chunks: bool  # whether each pass over a prompt begins with a checkpoint
    offers = frozenset()
    most_slots = MOST_OUTPUTS
    llama: RecurrentContext

    def __init__(self, spec: ModelSpec, model: LlamaModel | None = None) -> None:
        """Load the file; raises ModelUnusable."""
        self._check(spec)
        self.max_slots = spec.slots + spec.warm
        self.llama = self.context_of(spec, spec.slots, model)
        self._take_over(self.llama)
        self.shared_rows = self.llama.sequences * self.context
        self.swap_fixed = (1 + CHECKPOINTS) * self.llama.shape.state
        self.sums_alike = (
            self.llama.exact
        )  # the last row of a prompt is read alone, from a checkpoint
        self._slots: dict[int, Conversation] = {
            slot: Conversation() for slot in range(self.max_slots)
        }
        self._free = list(range(self.llama.sequences))
        self._turns: list[int] = []  # slots with a sequence, the one that ran last at the end
        self._passes = RecurrentPasses(self.llama, self._slots, self._take_all_back)

    @property
    def swapped(self) -> dict[int, int]:
        """Slots that are swapped out, with the bytes of RAM that each takes."""
        return {slot: len(one.swapped) for slot, one in self._slots.items() if one.swapped}

    @override
    def refuses(self, needs: frozenset[Capability]) -> str:
        if self._passes.most_rows == 1:
            return ALONE
        return self.chains if Capability.TREE in needs else ""

    @override
    def limit_rows(self, rows: int) -> None:
        self._passes.most_rows = min(rows, self.llama.batch)

    @override
    def pending(self, slot: int) -> int:
        return len(self._slots[slot].pending)

    # passes

    @override
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens; no logits are computed. An aborted call leaves the slot as it was."""
        held = self._begin(slot, {slot})
        self._read_again(slot)
        self._checkpoint(held)
        held.read = True
        before = len(held.committed)
        try:
            self._extend(slot, tokens)
        except Aborted:
            self._go_back(held, before)

    @override
    def decode(self, slot: int, tokens: Sequence[int]) -> Array:
        held = self._begin(slot, {slot})
        before = len(held.committed)
        if len(tokens) == 1:
            self._mark_prompt(slot)
            if held.unread:
                row = self._passes.run([Part(slot, tokens, 1)])[0]
            else:
                row = self._passes.plain(slot, tokens[0])
            held.committed += tokens
            return row
        self._read_again(slot)
        self._checkpoint(held)
        early = max(len(tokens) - self.llama.batch, 0)
        try:
            self._extend(slot, tokens[:early])
            row = self._passes.run([Part(slot, tokens[early:], 1)], self._abort)[0]
        except EngineError:
            self._go_back(held, before)
            raise
        held.committed += tokens[early:]
        return row

    @override
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Logits [N, V] of every node of each chain, after its slot's prefix."""
        needed = set(slots)
        parts = []
        for slot, tree in zip(slots, trees, strict=True):
            assert tree.is_chain, self.chains
            self._begin(slot, needed)
            self._mark_prompt(slot)
            self._prepare(slot, len(tree))
            parts.append(Part(slot, tree.tokens, len(tree)))
        try:
            found = self._passes.run(parts)
        except EngineError:
            for slot in slots:
                self._go_back(self._slots[slot], self.length(slot))
            raise
        for part in parts:
            self._slots[part.slot].pending += part.tokens
        return [Scores(rows) for rows in found]

    @override
    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keep the first uncommitted rows; the others are taken back before the next pass."""
        held = self._slots[slot]
        assert list(path) == list(range(len(path))), self.chains
        held.committed += held.pending[: len(path)]
        held.pending.clear()

    @override
    def running_state(self, slot: int) -> bytes:
        """Of the committed tokens."""
        self._settle(slot)
        held = self._slots[slot]
        if held.sequence is None or not self.llama.shape.state:
            return b""
        saved = self.llama.cache.save(held.sequence, held.run, whole=False)
        return saved.data.tobytes() if saved else b""

    # slots

    @override
    def crop(self, slot: int, length: int) -> None:
        """Forget uncommitted rows and the tokens after the first ``length``.

        Where the state cannot go back so far it goes to a checkpoint, and ``length`` says so.
        """
        held = self._slots[slot]
        held.pending.clear()
        if length < len(held.committed):
            held.cut(length)
        if held.surplus > held.reach:
            nearest = held.nearest()
            start = nearest.length if nearest else 0
            if len(held.committed) - start > READ_AGAIN:
                held.cut(start)
        if not held.committed:
            self._forget(slot)

    @override
    def clear(self) -> None:
        for slot in self._slots:
            self.crop(slot, 0)
        self.llama.cache.clear()

    @override
    def share(self, source: int, slot: int, length: int) -> None:
        """Take over the tokens of another slot up to its last checkpoint, if that is more than there are."""
        giver, held = self._slots[source], self._slots[slot]
        self._settle(source)
        known = [one for one in giver.checkpoints if one.length <= length]
        whole = giver.run <= length
        most = giver.run if whole else max((one.length for one in known), default=0)
        if most <= common_prefix(held.committed, giver.committed):
            return
        self.crop(slot, 0)
        cells = giver.swapped
        if giver.sequence is not None:
            cells = self.llama.cache.save(giver.sequence, giver.run, whole=True)
        if cells is None:
            return
        self._seat(slot, {slot})
        assert held.sequence is not None
        if not self.llama.cache.restore(held.sequence, cells):
            return
        held.run = cells.length
        held.committed += giver.committed[:most]
        held.checkpoints = list(known)
        self._settle(slot)
        if held.run < len(held.committed):  # the checkpoint could not be restored
            held.cut(held.run)

    @override
    def swap_out(self, slot: int) -> None:
        held = self._slots[slot]
        if held.sequence is not None and held.committed:
            self._evict(slot)

    @override
    def swap_in(self, slot: int) -> None:
        if self._slots[slot].swapped:
            self._seat(slot, {slot})

    # sequences

    def _seat(self, slot: int, needed: set[int]) -> None:
        """Give the slot a sequence, with what was swapped out; another slot's, if none is free."""
        held = self._slots[slot]
        if held.sequence is None:
            if not self._free:
                self._evict(next(one for one in self._turns if one not in needed))
            held.sequence, saved, held.swapped = self._free.pop(0), held.swapped, None
            back = saved is not None and self.llama.cache.restore(held.sequence, saved)
            held.run = saved.length if saved and back else 0
        else:
            self._turns.remove(slot)
        self._turns.append(slot)

    def _evict(self, slot: int) -> None:
        """Take the slot's sequence; what is committed is kept, where llama.cpp can save it."""
        held = self._slots[slot]
        assert held.sequence is not None
        held.pending.clear()
        self._settle(slot)
        saved = self.llama.cache.save(held.sequence, held.run, whole=True) if held.run else None
        self._leave(slot)
        held.swapped, held.run = saved, saved.length if saved else 0

    def _leave(self, slot: int) -> None:
        held = self._slots[slot]
        assert held.sequence is not None
        self.llama.cache.remove(held.sequence)
        self._free = sorted([*self._free, held.sequence])
        self._turns.remove(slot)
        held.sequence, held.run, held.reach = None, 0, 0

    def _forget(self, slot: int) -> None:
        """Everything of a slot."""
        held = self._slots[slot]
        if held.sequence is not None:
            self._leave(slot)
        held.cut(0)
        held.swapped, held.run, held.read = None, 0, False

    # states

    def _begin(self, slot: int, needed: set[int]) -> Conversation:
        """The slot with a sequence, whose state has no rows that are not committed."""
        held = self._slots[slot]
        held.pending.clear()
        self._seat(slot, needed)
        self._settle(slot)
        return held

    def _settle(self, slot: int) -> None:
        """Take back the rows of the state that are not committed."""
        held = self._slots[slot]
        if held.sequence is None or not held.surplus or held.pending:
            return
        length = len(held.committed)
        near = held.surplus <= held.reach
        if length and near and self.llama.cache.take_back(held.sequence, length):
            held.run, held.reach = length, self.llama.reach(held.sequence, length, 1)
        else:
            self._go_back(held, length)

    def _go_back(self, held: Conversation, length: int) -> None:
        """Bring the state to the last checkpoint of the first ``length`` tokens, or to the beginning."""
        assert held.sequence is not None
        held.pending.clear()
        held.cut(length)
        saved = held.nearest()
        back = saved is not None and self.llama.cache.restore(held.sequence, saved)
        if not back:
            self.llama.cache.remove(held.sequence)
        held.run, held.reach = saved.length if saved and back else 0, 0

    def _checkpoint(self, held: Conversation) -> None:
        """Keep the state as it is: of all the committed tokens."""
        assert held.sequence is not None
        if self.llama.shape.state and held.run and not held.checkpoint_at(held.run):
            made = self.llama.cache.save(held.sequence, held.run, whole=False)
            if made:
                held.keep(made)

    def _mark_prompt(self, slot: int) -> None:
        """A checkpoint at the end of a prompt: its answer may be asked for again."""
        held = self._slots[slot]
        if held.read and not held.unread:
            self._checkpoint(held)
        held.read = False

    def _prepare(self, slot: int, rows: int) -> None:
        """Before a pass of so many new rows: a way back from it."""
        held = self._slots[slot]
        last = rows + len(held.unread)
        if rows == 1 or (rows <= self.llama.rollback + 1 and last <= self._passes.widest):
            return
        self._read_again(slot)
        assert held.sequence is not None
        if held.run and self.llama.shape.state:
            held.before = self.llama.cache.save(
                held.sequence, held.run, whole=False, over=held.before
            )

    def _read_again(self, slot: int) -> None:
        """Bring the state to the end of the committed tokens."""
        held = self._slots[slot]
        if held.unread:
            self._passes.run([Part(slot, (), 0)])

    def _extend(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens of a prompt, in passes of as many rows as there are in one."""
        held = self._slots[slot]
        for at in range(0, len(tokens), self.llama.batch):
            part = tokens[at : at + self.llama.batch]
            if at and self.marks_chunks:
                self._checkpoint(held)
            self._passes.run([Part(slot, part, 0)], self._abort)
            held.committed += part

    @abstractmethod
    def _take_all_back(self, running: Sequence[int]) -> None:
        """Called with the slots of a pass of several, before it."""
