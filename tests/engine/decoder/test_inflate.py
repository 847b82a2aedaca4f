"""Inflated models: the same function to the last digits that matter, at the cost that is claimed."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from engine.decoder.decoder import Dense
from engine.decoder.inflate import inflated, padded
from engine.errors import ModelUnusable
from engine.interfaces.target import Rows
from engine.models.own.target import TorchTarget
from engine.speculation.tree import DraftTree, ReusedRows, single
from tests.engine.tiny import tiny_weights

TOLERANCE = 1e-5
PROMPT = [1, 2, 3, 5, 8]
TREE = DraftTree((4, 5, 6, 7, 8, 9), (-1, 0, 0, 1, 2, 2))


def near(ours, theirs):
    return bool((ours - theirs).abs().max() < TOLERANCE)


@pytest.fixture(params=[2, 3, 8], scope="module")
def weights(request):
    small = tiny_weights()
    return small, inflated(small, request.param), request.param


@pytest.fixture
def pair(weights):
    """(the model, the inflated model), both after the same prompt."""
    targets = [TorchTarget(found) for found in weights[:2]]
    for target in targets:
        target.feed(0, PROMPT)
    return targets


def a_tree_and_a_kept_path(target):
    scores = target.score([0], [replace(TREE, trace=True)])[0]
    assert scores.states.shape == (3, 6, 32)
    target.commit(0, (0, 2, 5))
    return scores.logits, scores.states, target.score([0], [single(7)])[0].logits


def early_exit(target, layers):
    logits, states = target.shallow([0], [4], layers)
    tree = DraftTree((4, 5), (-1, 0), warm=ReusedRows(states))
    return logits, states, target.read(states[-1]), target.score([0], [tree])[0].logits


def a_tree_level_by_level(target):
    levels = Rows(0, [4, 5], [-1, 0]), Rows(0, [6, 7], [0, 1])
    return [target.grow([rows])[0].logits for rows in levels]


@pytest.mark.parametrize(
    "ran",
    [
        a_tree_and_a_kept_path,
        partial(early_exit, layers=1),
        partial(early_exit, layers=2),
        a_tree_level_by_level,
    ],
)
def test_logits_and_states_of_every_kind_of_pass_stay(pair, ran):
    for small, large in zip(*map(ran, pair), strict=True):
        assert near(large, small)


def test_the_cost_grows_by_what_is_claimed_and_alike_every_time(weights):
    """All of it is real work: rows that were zero could be skipped by a clever kernel."""
    small, large, times = weights
    again = inflated(small, times)
    arch = small.arch
    added = 3 * arch.hidden * arch.feed_forward * (times - 1) * arch.layers
    assert large.parameters - small.parameters == added
    assert large.arch == replace(arch, feed_forward=arch.feed_forward * times)
    for layer, same in zip(large.layers, again.layers, strict=True):
        assert torch.equal(layer.gate_up.weight, same.gate_up.weight)
        gate, up = layer.gate_up.weight.chunk(2)
        assert (gate[arch.feed_forward :] != 0).all()
        assert (up[arch.feed_forward :] != 0).all()
        assert layer.down.weight.shape == (arch.hidden, arch.feed_forward * times)


def test_in_bfloat16_it_stays_bfloat16_and_the_same_function():
    half = halved(tiny_weights())
    large = inflated(half, 3)
    assert large.layers[0].gate_up.weight.dtype is torch.bfloat16
    scores = [TorchTarget(w).score([0], [TREE])[0].logits.float() for w in (half, large)]
    assert (scores[1] - scores[0]).abs().max() < 0.05 * scores[0].abs().max()


def halved(weights):
    def half(part, *names):
        """The same with these fields in bfloat16."""
        fields = {name: getattr(part, name) for name in names}
        halves = {
            name: Dense(field.weight.bfloat16()) if isinstance(field, Dense) else field.bfloat16()
            for name, field in fields.items()
        }
        return replace(part, **halves)

    names = ("qkv", "out", "gate_up", "down", "attention_norm", "mlp_norm")
    layers = tuple(half(layer, *names) for layer in weights.layers)
    return replace(half(weights, "embedding", "norm", "head"), layers=layers)


def test_a_bias_is_refused_with_a_sentence():
    small = tiny_weights()
    biased = replace(small.layers[0], down=Dense(small.layers[0].down.weight, torch.ones(32)))
    with pytest.raises(ModelUnusable, match="cannot be inflated"):
        inflated(replace(small, layers=(biased, *small.layers[1:])), 2)


def test_wider_states_are_the_same_function():
    """So that rows have lengths which blocks of a quantised file divide."""
    small = tiny_weights()
    large = padded(small, 48)
    assert large.arch == replace(small.arch, hidden=48, norm_eps=small.arch.norm_eps * (32 / 48))
    assert large.layers[0].gate_up.weight.shape[1] == 48
    scores = [TorchTarget(w).score([0], [TREE])[0].logits for w in (small, large)]
    assert near(scores[1], scores[0])
    both = [TorchTarget(w).score([0], [TREE])[0].logits for w in (small, inflated(large, 3))]
    assert near(both[1], both[0])
