"""Narrow passes: the same states and scores as torch's, in the same cache."""

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest
import torch

from engine.decoder.decoder import Dense
from engine.decoder.weights import DecoderWeights
from engine.interfaces.target import Rows
from engine.models.own.target import TorchTarget, load_target
from engine.platform.numpy_forward import ROWS, with_numpy_forward
from engine.platform.onednn_linear import packed
from tests.bundled import POCKET, POCKET_DRAFT
from tests.engine.models.conversations import SLOTS, converse, random_tree, same_rows
from tests.engine.tiny import tiny_weights

CLOSE = 1e-5
PREFIX = [3, 1, 4, 1, 5, 9, 2, 6]


def biased(weights):
    """The same with a bias on every map of a layer."""
    generator = torch.Generator().manual_seed(1)

    def with_bias(linear):
        return Dense(linear.weight, torch.randn(len(linear.weight), generator=generator))

    maps = ("qkv", "out", "gate_up", "down")
    layers = tuple(
        replace(layer, rotates=n != 1, **{name: with_bias(getattr(layer, name)) for name in maps})
        for n, layer in enumerate(weights.layers)
    )
    return replace(weights, layers=layers)


@pytest.fixture(params=["plain", "biased, one layer without positions"])
def pair(request):
    """The same model by torch alone, and by row."""
    weights = tiny_weights(3)
    if request.param != "plain":
        weights = biased(weights)
    fast = with_numpy_forward(weights)
    assert fast.row_by_row is not None
    return TorchTarget(weights), TorchTarget(fast)


def grown(target, *calls):
    """Scores and states of some calls, after the prefix."""
    target.feed(0, PREFIX)
    return [part for call in calls for part in target.grow([call])]


CALLS = {
    "a chain": [Rows(0, [7], [-1]), Rows(0, [8], [0]), Rows(0, [2], [1])],
    "several rows, the last one scored": [Rows(0, [7, 8, 2], [-1, 0, 1], last=1)],
    "a tree": [Rows(0, [7], [-1]), Rows(0, [8, 2, 5], [0, 0, -1]), Rows(0, [1, 1], [2, 1])],
}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_rows_score_as_torch_says(pair, calls):
    for wanted, found in zip(*(grown(target, *calls) for target in pair), strict=True):
        assert torch.allclose(found.logits, wanted.logits, atol=CLOSE)
        assert torch.allclose(found.hidden, wanted.hidden, atol=CLOSE)
        assert found.logits.dtype == found.hidden.dtype == torch.float32


def test_conversations_are_torchs(pair):
    """Also where torch continues after NumPy and NumPy after torch, with several requests in a step."""
    drafted = partial(random_tree, most=ROWS + 3)
    converse(
        *pair, Random(0), lambda ours, theirs: torch.allclose(ours, theirs, atol=CLOSE), drafted
    )
    assert all(same_rows(*pair, slot, CLOSE) for slot in range(SLOTS))


def test_a_cache_that_grows_is_read_again(pair):
    for target in pair:
        target.grow([Rows(0, [1], [-1])])
        target.crop(0, 0)
        target.feed(0, PREFIX)
        target.cache.reserve(0, 2000)
    (wanted,), (found,) = (target.grow([Rows(0, [6], [-1])]) for target in pair)
    assert torch.allclose(found.logits, wanted.logits, atol=CLOSE)


def test_large_gates_overflow_nothing():
    weights = tiny_weights(3)
    loud = tuple(
        replace(layer, gate_up=Dense(1000 * layer.gate_up.weight)) for layer in weights.layers
    )
    target = TorchTarget(with_numpy_forward(replace(weights, layers=loud)))
    assert np.isfinite(grown(target, Rows(0, [7], [-1]))[0].logits.numpy()).all()


@pytest.mark.parametrize(
    "other",
    [
        lambda w: replace(w, parameters=10**7),
        lambda w: replace(w, embedding=w.embedding.bfloat16()),
        lambda w: replace(w, arch=replace(w.arch, norm_after=True)),
        lambda w: replace(w, layers=(replace(w.layers[0], q_norm=torch.ones(8)), *w.layers[1:])),
        lambda w: replace(w, arch=replace(w.arch, head_dim=16)),
        lambda w: replace(w, head=lambda x: x),
    ],
)
def test_what_rows_do_not_compute_stays_with_torch(other):
    changed: DecoderWeights = other(tiny_weights())
    assert with_numpy_forward(changed) is changed


def test_the_bundled_draft_goes_by_rows_and_the_bundled_model_does_not():
    draft, model = (load_target(at, "float32", "cpu").weights for at in (POCKET_DRAFT, POCKET))
    assert draft.row_by_row is not None
    assert packed(draft).row_by_row is not None
    assert model.row_by_row is None
