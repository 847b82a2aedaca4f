"""What a transformers model with running states can take, found out by trying, and the target that follows."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.models.hf.exact import SAME_ROWS
from engine.models.hf.mixers import mixers_of, run_by_rows
from engine.models.hf.model import CausalModel
from engine.models.hf.running_cache import RunningCache, knows_layers
from engine.models.hf.running_target import ExactRunningTarget, RunningTarget
from engine.models.hf.target import Abilities, Closeness
from engine.speculation.tree import DraftTree, chain

BROKEN = (TypeError, ValueError, RuntimeError, LookupError, AttributeError)  # by a wrong use
NOT_ALIKE = (
    "rows of a draft cannot be given the bits of plain ones in this family ({family}); exact = false "
    "in config.toml lets drafts be verified all the same"
)


@torch.inference_mode()
def running_target(model: CausalModel, context: int, *, exact: bool) -> RunningTarget | None:
    """The target over a model whose running states can be kept row by row; None where they cannot.

    ``exact``: whether drafted rows must have the bits of plain ones.
    """
    if not knows_layers(model.config):
        return None
    try:
        mixers = mixers_of(model.module, model.config, model.cache_name)
    except BROKEN:  # by a cache that is not the library's own
        return None
    for mixer in mixers:
        run_by_rows(mixer)
    ids = [(7 * i + 3) % int(model.config.vocab_size) for i in range(SAME_ROWS + 5)]
    tried = _Trial(model, ids)
    if not mixers or not tried.right(tried.by_rows):
        return None
    chunks = tried.reads_on()
    if exact:
        target = ExactRunningTarget(model, context, Abilities(chunks=chunks))
        if tried.right(lambda: tried.in_one_shape(target)):
            return target
    inexact = NOT_ALIKE.format(family=model.family) if exact else ""
    trees = _against_trees(model, tried)
    return RunningTarget(model, context, Abilities(trees=trees, chunks=chunks, inexact=inexact))


def _against_trees(model: CausalModel, tried: "_Trial") -> str:
    """Why drafts are no trees; empty where they can be."""
    if strange := model.sparse_fields():
        return f"this family's attention is not known well enough: {strange[0]}"
    if tried.right(tried.along_a_branch):
        return ""
    return f"this family ({model.family}) scores trees wrongly"


class _Trial:
    """Ways to run a few tokens, each against one plain pass over them."""

    def __init__(self, model: CausalModel, ids: Sequence[int]) -> None:
        self._model, self._ids = model, list(ids)
        self._close = Closeness(model)

    def right(self, logits: Callable[[], Tensor]) -> bool:
        """Whether these are the logits of the last of the tokens."""
        try:
            return self._close.to_plain(logits(), self._ids)
        except BROKEN:
            return False

    def by_rows(self) -> Tensor:
        """After a prefix, with a detour that is taken back."""
        target = self._target()
        target.feed(0, self._ids[:3])
        target.score([0], [chain(self._ids[:5])])
        target.commit(0, ())
        return target.score([0], [chain(self._ids[3:])])[0].logits

    def reads_on(self) -> bool:
        """Whether several rows after a state are read at once, and from that state.

        Some families begin again from zero; where states fade fast that hardly shows in the logits.
        """
        found, recurs = [], False
        for moved in (0.0, 1.0):
            target = self._target()
            target.feed(0, self._ids[:3])
            cache = target.cache(0)
            for layer in cache.running:
                layer.kept = layer.kept.moved(moved)
            recurs = any(layer.kept.recurs for layer in cache.running)
            try:
                found.append(self._at_once(target, cache))
            except BROKEN:
                return False
        right = self._close.to_plain(found[0], self._ids)
        return right and not (recurs and torch.equal(*found))

    def _at_once(self, target: RunningTarget, cache: RunningCache) -> Tensor:
        rest = self._ids[3:]
        cache.expect(0, len(rest), None)
        return target.model.run(rest, cache, 3, last=len(rest), hidden=False).logits

    def in_one_shape(self, target: RunningTarget) -> Tensor:
        """In passes that are filled up."""
        target.feed(0, self._ids[:3])
        [scores] = target.score([0], [chain(self._ids[3:])])
        target.crop(0, 0)
        return scores.logits

    def along_a_branch(self) -> Tensor:
        """Two rows in a tree with other branches, kept, and those after them."""
        target, ids = self._target(), self._ids
        target.feed(0, ids[:4])
        tree = DraftTree((ids[4], ids[0], ids[5], ids[1], ids[6]), (-1, 0, 0, 1, 2))
        branch = target.score([0], [tree])[0].logits[[0, 2, 4]]
        target.commit(0, (0, 2, 4))
        after = target.score([0], [DraftTree(tuple(ids[7:]), tuple(range(-1, len(ids) - 8)))])
        return torch.cat((branch, after[0].logits))

    def _target(self) -> RunningTarget:
        return RunningTarget(self._model, len(self._ids) + 8, Abilities())
