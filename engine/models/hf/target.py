"""The target over any causal model of the transformers library, and what such a model can take.

Sequences run one after the other, each with its own cache, so none sees another.
What a model can do is found out by trying, once, when it is loaded: its tree pass, its chunks and
its cropped cache must give the logits of one plain pass over the same tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from engine.errors import Aborted, ModelUnusable
from engine.interfaces.target import Capability, Grown, Rows, Scores, Target
from engine.models.hf.model import (
    CLOSE,
    Branches,
    CausalModel,
    PassResult,
)
from engine.platform.device_memory import out_of_memory_as_ours
from engine.speculation.tree import DraftTree, ancestor_bits, bit_rows

REBUILD_ROWS = 256  # of one pass, where a sequence is run again


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model can do. ``chains`` and ``trees`` are the reason why not; empty: it can."""

    chains: str = ""  # rows can be taken back
    trees: str = ""  # rows may hang anywhere
    chunks: bool = True  # several rows after a prefix in one pass
    inexact: str = ""  # why drafted rows are not to be verified though they can be taken back


@dataclass
class HeldRows:
    """A slot's cache and the tokens whose rows it has."""

    cache: Any = None
    committed: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)  # of pending rows
    seen: list[int] = field(default_factory=list)  # the same rows' ``ancestor_bits``

    def forget_pending(self) -> None:
        """The cache was cut already."""
        self.pending, self.depths, self.seen = [], [], []


class HfTarget(Target):
    """A target over a model of the transformers library."""

    sums_alike = False

    def __init__(self, model: CausalModel, context: int, abilities: Abilities) -> None:
        self.model, self.abilities = model, abilities
        self.context, self.vocab = context, int(model.config.vocab_size)
        self.layers = int(model.config.num_hidden_layers)
        self.parameters = model.parameters
        self.offers = frozenset() if abilities.trees else frozenset({Capability.TREE})
        self._slots: dict[int, HeldRows] = {}

    @override
    def refuses(self, needs: frozenset[Capability]) -> str:
        if why := self.abilities.chains or self.abilities.inexact:
            return why
        return self.abilities.trees if Capability.TREE in needs else ""

    @override
    def length(self, slot: int) -> int:
        return len(self._slot(slot).committed)

    @override
    def pending(self, slot: int) -> int:
        return len(self._slot(slot).pending)

    @override
    def tokens(self, slot: int) -> Sequence[int]:
        return self._slot(slot).committed

    @override
    @torch.inference_mode()
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens unjudged: a prompt chunk."""
        row = self._slot(slot)
        self._take_back(row, 0)
        self._run(row, tokens, range(-1, len(tokens) - 1), last=1)
        self.commit(slot, range(len(tokens)))

    @override
    @torch.inference_mode()
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Logits [N, V] of every node of each tree, after its slot's prefix."""
        found = []
        for slot, tree in zip(slots, trees, strict=True):
            row = self._slot(slot)
            self._take_back(row, 0)
            found.append(Scores(self._logits(row, tree)))
        return found

    def _logits(self, row: HeldRows, tree: DraftTree) -> Tensor:
        """[N, V] of a tree's nodes, which are then pending."""
        return self._run(row, tree.tokens, tree.parents).logits

    @override
    @torch.inference_mode()
    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        """Run more rows after the uncommitted ones of each slot."""
        found = []
        for rows in batch:
            last = rows.last or len(rows.tokens)
            row = self._slot(rows.slot)
            ran = self._run(row, rows.tokens, rows.parents, last=last, hidden=True)
            assert ran.hidden is not None
            found.append(Grown(ran.logits, ran.hidden[-last:]))
        return found

    @override
    @torch.inference_mode()
    def commit(self, slot: int, path: Sequence[int]) -> None:
        with out_of_memory_as_ours(self.model.device):
            self._commit(self._slot(slot), path)

    def _commit(self, row: HeldRows, path: Sequence[int]) -> None:
        if self.abilities.chains:
            kept = [row.pending[node] for node in path]
            if len(kept) < len(row.pending):
                self._rebuild(row, row.committed + kept)
            else:
                row.committed += kept
                row.forget_pending()
            return
        self._take_back(row, len(path), path)

    @override
    @torch.inference_mode()
    def crop(self, slot: int, length: int) -> None:
        """Forget uncommitted rows and every token after the first ``length``.

        A model with a running state cannot go back: it forgets everything, and ``length`` says so.
        """
        row = self._slot(slot)
        self._take_back(row, 0)
        surplus = len(row.committed) - length
        if surplus <= 0:
            return
        if self.abilities.chains or length == 0:
            self._slots[slot] = self._fresh()
        else:
            row.cache.cut(length)
            del row.committed[length:]

    def _slot(self, slot: int) -> HeldRows:
        if slot not in self._slots:  # every round asks several times, and a cache takes a while
            self._slots[slot] = self._fresh()
        return self._slots[slot]

    def _fresh(self) -> HeldRows:
        return HeldRows(new_cache(self.model))

    def _take_back(self, row: HeldRows, kept: int, path: Sequence[int] = ()) -> None:
        """Forget pending rows but ``path``, ``kept`` of them, which join the prefix in that order."""
        if not row.pending:
            return
        if self.abilities.chains:
            self._rebuild(row, row.committed)
            return
        if list(path) == list(range(kept)):
            if kept < len(row.pending):  # plain decoding keeps all, and every layer takes a while
                row.cache.cut(len(row.committed) + kept)
        else:
            row.cache.keep(len(row.committed), path)
        row.committed += [row.pending[node] for node in path]
        row.forget_pending()

    def _rebuild(self, row: HeldRows, tokens: Sequence[int]) -> None:
        """The only way back for a running state: from the start."""
        row.cache, row.committed = new_cache(self.model), []
        row.forget_pending()
        for at in range(0, len(tokens), REBUILD_ROWS):
            chunk = list(tokens[at : at + REBUILD_ROWS])
            self._run(row, chunk, range(-1, len(chunk) - 1), last=1)
            row.committed += row.pending
            row.forget_pending()

    def _run(
        self,
        row: HeldRows,
        tokens: Sequence[int],
        parents: Sequence[int],
        *,
        last: int | None = None,
        hidden: bool = False,
    ) -> PassResult:
        """Append rows after the pending ones; a parent indexes pending rows, -1 is the prefix.

        Logits of the ``last`` rows, else of all.
        """
        fresh = ancestor_bits(parents, row.seen)
        row.seen += fresh
        for parent in parents:
            row.depths.append(0 if parent < 0 else row.depths[parent] + 1)
        row.pending += tokens
        with out_of_memory_as_ours(self.model.device):
            return self._placed(row, tokens, fresh, last or len(tokens), hidden=hidden)

    def _placed(
        self, row: HeldRows, tokens: Sequence[int], fresh: Sequence[int], last: int, *, hidden: bool
    ) -> PassResult:
        """A pass over the last of the pending rows, which see what ``fresh`` says."""
        if row.depths == list(range(len(row.depths))):
            return self._run_straight(row, tokens, last, hidden=hidden)
        branches = Branches(len(row.committed), row.depths, bit_rows(fresh, len(row.seen)))
        ran = self.model.run(tokens, row.cache, branches, last=last, hidden=hidden)
        row.cache = ran.cache
        return ran

    def _run_straight(
        self, row: HeldRows, tokens: Sequence[int], last: int, *, hidden: bool
    ) -> PassResult:
        """A continuation: the model makes its own mask, as in plain decoding."""
        at = len(row.committed) + len(row.pending) - len(tokens)
        whole = self.abilities.chunks or at == 0
        parts = [tokens] if whole else [[token] for token in tokens]
        ran = []
        for part in parts:
            rows = min(last, len(part))
            ran.append(self.model.run(part, row.cache, at, last=rows, hidden=hidden))
            row.cache = ran[-1].cache
            at += len(part)
        states = [r.hidden for r in ran if r.hidden is not None]
        logits = torch.cat([r.logits for r in ran[-last:]])
        return PassResult(logits, row.cache, torch.cat(states) if states else None)


class CroppedHfTarget(HfTarget):
    """One whose caches can be cut anywhere.

    So a slot takes over what another one has read, and a prompt chunk can be left in any layer.
    """

    can_share = True

    def __init__(self, model: CausalModel, context: int, abilities: Abilities) -> None:
        super().__init__(model, context, abilities)
        self._abort: Callable[[], bool] = bool

    @override
    def abort_when(self, aborted: Callable[[], bool]) -> bool:
        """Checked in every layer."""
        self._abort = aborted
        return True

    @override
    @torch.inference_mode()
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens unjudged: a prompt chunk. When it is aborted the slot is as before."""
        row = self._slot(slot)
        row.cache.ends = self._abort
        try:
            super().feed(slot, tokens)
        except Aborted:
            self._take_back(row, 0)
        finally:
            row.cache.ends = bool

    @override
    @torch.inference_mode()
    def share(self, source: int, slot: int, length: int) -> None:
        held, row = self._slot(source), self._fresh()
        with out_of_memory_as_ours(self.model.device):
            row.cache.begin_as(held.cache, length)
        row.committed = held.committed[:length]
        self._slots[slot] = row


def new_cache(model: CausalModel) -> Any:
    """An empty one; None lets a model with a running state make its own."""
    from engine.models.hf.cache import RowCache

    return RowCache() if model.attention_only() else None


@torch.inference_mode()
def abilities_of(model: CausalModel) -> Abilities:
    """Try what a model takes, each against one plain pass over the same tokens; raises ModelUnusable."""
    ids = [(7 * i + 3) % int(model.config.vocab_size) for i in range(9)]
    close = Closeness(model)
    if not model.attention_only():
        why = (
            f"the layers of this family ({model.family}) keep a running state, from which drafted "
            "tokens cannot be taken back"
        )
        if close.to_plain(_after(model, Abilities(why), ids), ids):
            return Abilities(why, why)
        return _one_by_one(close, why, ids)
    if not close.to_plain(_after(model, Abilities(), ids), ids):
        why = (
            f"the cache of this family ({model.family}) cannot be cropped without changing answers"
        )
        return _one_by_one(close, why, ids)
    if strange := model.sparse_fields():
        return Abilities(trees=f"this family's attention is not known well enough: {strange[0]}")
    try:
        right = close.to_plain(_along_a_branch(model, ids), ids)
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
        return Abilities(trees=f"this family ({model.family}) cannot score trees: {error}")
    why = f"this family ({model.family}) scores trees wrongly: its positions follow rows, not depth"
    return Abilities(trees="" if right else why)


@dataclass(frozen=True, slots=True)
class Closeness:
    """Whether logits are a model's own, but for rounding."""

    model: CausalModel

    def to_plain(self, logits: Tensor, ids: Sequence[int]) -> bool:
        """Whether these are the logits of the last rows of one pass over ``ids``."""
        plain = self._plain(ids, len(logits))
        most = plain.float().abs().max()
        difference = (logits.float() - plain.float()).abs().max()
        return bool(difference <= CLOSE[self.model.dtype] * most)

    def has_numbers(self, ids: Sequence[int]) -> bool:
        """Whether one pass gives finite logits; the engine reports weights that do not."""
        return bool(self._plain(ids, 1).isfinite().all())

    def _plain(self, ids: Sequence[int], last: int) -> Tensor:
        return self.model.run(ids, new_cache(self.model), 0, last=last, hidden=False).logits


def _one_by_one(close: Closeness, why: str, ids: Sequence[int]) -> Abilities:
    """What is left where chunks change answers; raises ModelUnusable where single tokens do, too."""
    abilities = Abilities(why, why, chunks=False)
    right = close.to_plain(_after(close.model, abilities, ids), ids)
    if not right and close.has_numbers(ids):
        raise ModelUnusable(
            f"family {close.model.family!r} of the transformers library gives other logits for "
            f"{len(ids)} tokens one by one than in one pass; choose another model"
        )
    return abilities


def _after(model: CausalModel, abilities: Abilities, ids: Sequence[int]) -> Tensor:
    """Logits of the last rows, in two chunks, with a detour that is cropped where that can be done."""
    target = HfTarget(model, len(ids) + 8, abilities)
    target.feed(0, ids[:3])
    if not abilities.chains:
        target.feed(0, ids[6:])
        target.crop(0, 3)
    row = target._slot(0)  # noqa: SLF001 - the same file
    return target._run(row, ids[3:], range(-1, len(ids) - 4)).logits  # noqa: SLF001


def _along_a_branch(model: CausalModel, ids: Sequence[int]) -> Tensor:
    """Logits of the last rows: two in a tree with other branches, kept, and those after them."""
    target = HfTarget(model, len(ids) + 8, Abilities())
    target.feed(0, ids[:4])
    tree = DraftTree((ids[4], ids[0], ids[5], ids[1], ids[6]), (-1, 0, 0, 1, 2))
    branch = target.score([0], [tree])[0].logits[[0, 2, 4]]
    target.commit(0, (0, 2, 4))
    after = target.score([0], [DraftTree(tuple(ids[7:]), (-1, 0))])[0].logits
    return torch.cat((branch, after))
