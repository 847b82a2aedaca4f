"""Chains resumed after an exit: the early layers of their rows ran once."""

import pytest

from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.speculation.rng import SeededRandom
from tests.engine.draft_length.exits import GREEDY
from tests.engine.tiny import tiny_target


@pytest.mark.parametrize("exit_layer", [1, 2, 4])
def test_a_chain_resumed_after_an_exit_scores_each_path_like_the_path_alone(exit_layer):
    """The last row has not run through the early layers: it catches up in the pass."""
    target, fresh = tiny_target(3, layers=5), tiny_target(3, layers=5)
    ids = [1, 2, 3, 4]
    target.feed(0, ids[:-1])
    here = Context(1, 0, ids, GREEDY, SeededRandom(0))
    [tree] = EarlyExit(DrafterResources(target)).draft(
        [here], [Budget(3, 3, exit_layer=exit_layer)]
    )
    assert len(tree) == 1 + 3
    scores = target.score([0], [tree])[0]
    for node in range(len(tree)):
        fresh.crop(0, 0)
        fresh.feed(0, [*ids[:-1], *tree.tokens[:node]])
        alone = fresh.shallow([0], [tree.tokens[node]], fresh.layers)[0][0]
        assert scores.logits[node] == pytest.approx(alone, abs=1e-3)
    path = (0, 1, 2, 3)
    target.commit(0, path)
    assert list(target.tokens(0)) == ids[:-1] + [tree.tokens[n] for n in path]
    fresh.crop(0, 0)
    fresh.feed(0, list(target.tokens(0)))
    for layer in range(5):
        pairs = zip(target.cache.rows(0, layer), fresh.cache.rows(0, layer), strict=True)
        assert all((held - wanted).abs().max() < 1e-4 for held, wanted in pairs)
