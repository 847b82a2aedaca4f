"""Narrow passes: the same states and scores as torch's, in the same cache."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.decoder.decoder import Dense
from engine.decoder.weights import DecoderWeights
from engine.interfaces.target import Rows
from engine.models.own.target import TorchTarget, load
from engine.platform.numpy_forward import ROWS, with_numpy_forward
from engine.platform.onednn_linear import packed
from engine.request import ModelSpec
from tests.engine.tiny import tiny_weights

CLOSE = 1e-5
PREFIX = [3, 1, 4, 1, 5, 9, 2, 6]


def biased(weights):
    """The same with a bias on every map of a layer."""
    generator = torch.Generator().manual_seed(1)

    def with_bias(linear):
        return Dense(linear.weight, torch.randn(len(linear.weight), generator=generator))

    layers = tuple(
        replace(
            layer, qkv=with_bias(layer.qkv), out=with_bias(layer.out),
            gate_up=with_bias(layer.gate_up), down=with_bias(layer.down), rotates=index != 1,
        )
        for index, layer in enumerate(weights.layers)
    )  # fmt: skip
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


def test_what_is_kept_is_what_torch_keeps(pair):
    """Keys of accepted rows stay; torch continues where NumPy stopped, and NumPy where torch did."""
    for target in pair:
        grown(target, *CALLS["a tree"])
        target.commit(0, [0, 2, 4])
        target.grow([Rows(0, list(range(ROWS + 2)), range(-1, ROWS + 1))])  # too wide for rows
        target.commit(0, range(ROWS + 2))
    (wanted,), (found,) = (target.grow([Rows(0, [6], [-1])]) for target in pair)
    assert torch.allclose(found.logits, wanted.logits, atol=CLOSE)
    for layer in range(3):
        for kept, usual in zip(*(t.cache.rows(0, layer) for t in reversed(pair)), strict=True):
            assert torch.allclose(kept, usual, atol=CLOSE)


def test_a_cache_that_grows_is_read_again(pair):
    for target in pair:
        target.grow([Rows(0, [1], [-1])])
        target.crop(0, 0)
        target.feed(0, PREFIX)
        target.cache.reserve(0, 2000)
    (wanted,), (found,) = (target.grow([Rows(0, [6], [-1])]) for target in pair)
    assert torch.allclose(found.logits, wanted.logits, atol=CLOSE)


def test_requests_of_one_step_do_not_see_each_other(pair):
    _, target = pair
    alone = grown(target, Rows(0, [7], [-1]))[0].logits
    target.crop(0, len(PREFIX))
    target.feed(1, [2, 2])
    together = target.grow([Rows(1, [3], [-1]), Rows(0, [7], [-1])])
    assert torch.equal(together[1].logits, alone)


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
    bundled = "engine/bundled"
    draft, model = (
        load(ModelSpec(name, f"{bundled}/{name}", dtype="float32"))
        for name in ("pocket-draft", "pocket")
    )
    assert draft.weights.row_by_row is not None
    assert packed(draft.weights).row_by_row is not None
    assert model.weights.row_by_row is None
