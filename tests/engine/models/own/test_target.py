"""The target contract; tests/engine/decoder/test_families.py compares every family with transformers."""

from dataclasses import replace

import pytest
import torch

from engine.interfaces.target import Rows
from engine.speculation.tree import DraftTree, ReusedRows, chain, single
from tests.engine.tiny import tiny_target

TOLERANCE = 1e-4


def test_growing_level_by_level_equals_scoring_at_once():
    target = tiny_target()
    target.feed(0, [1, 2, 3])
    tree = DraftTree((4, 5, 6, 7, 8), (-1, 0, 0, 1, 2))
    whole = target.score([0], [tree])[0].logits
    target.crop(0, target.length(0))
    cuts = (slice(0, 1), slice(1, 3), slice(3, 5))
    rows = [Rows(0, tree.tokens[cut], tree.parents[cut]) for cut in cuts]
    parts = [target.grow([row])[0].logits for row in rows]
    assert (torch.cat(parts) - whole).abs().max() < TOLERANCE


@pytest.mark.parametrize("exit_layer", [1, 2])
def test_resuming_after_early_exit_equals_a_full_pass(exit_layer):
    target = tiny_target()
    target.feed(0, [1, 2, 3])
    whole = target.score([0], [chain([4, 5, 6])])[0].logits
    target.crop(0, target.length(0))
    states = [target.shallow([0], [token], exit_layer)[1] for token in (4, 5)]
    warm = ReusedRows(torch.cat(states, 1))
    resumed = target.score([0], [DraftTree((4, 5, 6), (-1, 0, 1), warm=warm)])[0].logits
    assert (resumed - whole).abs().max() < TOLERANCE


def test_a_batch_equals_each_sequence_alone():
    batch, alone = tiny_target(), tiny_target()
    prompts = ([1, 2, 3], [4, 5, 6, 7, 8], [9])
    trees = (chain([4, 5]), DraftTree((1, 2, 3), (-1, 0, 0)), single(2))
    for slot, prompt in enumerate(prompts):
        batch.feed(slot, prompt)
        alone.feed(slot, prompt)
    warm = replace(trees[0], warm=ReusedRows(batch.shallow([0], [4], 1)[1]))
    together = batch.score([0, 1, 2], [warm, *trees[1:]])
    for slot, tree in enumerate(trees):
        single_run = alone.score([slot], [tree])[0].logits
        assert (together[slot].logits - single_run).abs().max() < TOLERANCE
