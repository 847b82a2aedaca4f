"""Rounded weights: near the model's own answers, by measured amounts, at a quarter of the memory."""

import pytest
import torch
import transformers

from engine.build import build
from engine.decoder.decoder import EXACT_ROWS, Dense
from engine.errors import ModelUnusable
from engine.models.own.int8 import Int8, Int8Quantiser
from engine.models.own.target import load
from engine.platform.native_linear import NativeLinear
from engine.platform.onednn_int8 import W8A8Linear
from engine.request import GenerationRequest, ModelSpec
from engine.speculation.tree import DraftTree, chain, single
from tests.bundled import POCKET
from tests.engine.models.checkpoints import IDS, SMALL, saved
from tests.engine.tiny import run_all

DTYPES = (torch.float32, torch.bfloat16)


def spec(folder, **changes):
    return ModelSpec("tiny", str(folder), **changes)


def dense(out, into, dtype, bias=False):
    generator = torch.Generator().manual_seed(out)
    weight = torch.randn(out, into, generator=generator)
    given = torch.randn(out, generator=generator).to(dtype) if bias else None
    return Dense(weight.to(dtype), given)


class TestMap:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_no_weight_moves_by_more_than_half_a_step(self, dtype):
        plain = dense(70, 64, torch.float32)
        rounded = Int8Quantiser().map(Dense(plain.weight.to(dtype)))
        step = rounded.scale.float().unsqueeze(1)
        difference = (plain.weight.to(dtype).float() - rounded.rows.float() * step).abs()
        # the scale itself is rounded, so the largest weight of a row may lie beyond the last step
        assert (
            difference <= 0.5 * step + 1e-6 + (0 if dtype == torch.float32 else 0.5) * step
        ).all()
        assert rounded.rows.dtype == torch.int8

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("rows", [1, 8, EXACT_ROWS, EXACT_ROWS + 1])
    @pytest.mark.parametrize("out", [96, 1100])
    def test_both_ways_to_multiply_give_the_widened_weight_times_the_rows(self, dtype, rows, out):
        rounded = Int8Quantiser().map(dense(out, 64, dtype, bias=True))
        x = torch.randn(2, rows, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
        exact = x.double() @ (rounded.rows.double() * rounded.scale.double()[:, None]).T
        exact += rounded.bias.double()
        difference = (rounded(x).double() - exact).abs().max()
        assert difference < (1e-4 if dtype == torch.float32 else 0.02) * exact.abs().max()
        assert rounded(x).shape == (2, rows, out)

    def test_a_row_of_zeros_stays_one_and_memory_falls_to_a_quarter(self):
        plain = Dense(torch.zeros(512, 1024))
        rounded = Int8Quantiser().map(plain)
        assert (rounded(torch.ones(3, 1024)) == 0).all()
        assert rounded.rows.nbytes + rounded.scale.nbytes < 0.26 * plain.weight.nbytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    saved(transformers.LlamaConfig(**{**SMALL, "hidden_size": 64}, attention_bias=True), place)
    return place


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tree_equals_its_paths_with_rounded_weights_too(folder, dtype):
    """What is drafted and verified is the rounded model, so drafting still changes nothing."""
    target = load(spec(folder, weights="int8", dtype=dtype))
    assert isinstance(target.weights.layers[0].qkv, Int8 | W8A8Linear | NativeLinear)
    assert isinstance(target.weights.head, Int8 | W8A8Linear | NativeLinear)
    target.feed(0, IDS[:20])
    tree = DraftTree(tuple(IDS[20:32]), (-1, 0, 0, *range(1, 10)))  # wider than the narrow way
    logits = target.score([0], [tree])[0].logits.float()
    target.crop(0, 20)
    path = [20, 21, 23, 25, 27, 29, 31]
    alone = target.score([0], [chain([IDS[at] for at in path])])[0].logits.float()
    rounding = 1e-4 if dtype == "float32" else 0.06
    assert (logits[[at - 20 for at in path]] - alone).abs().max() < rounding * alone.abs().max()


def test_the_bundled_model_changes_by_what_the_documentation_says():
    """Measured over its own greedy text: agreement with the full model, and how far its law moves."""
    full = load(spec(POCKET))
    ids = [(37 * i) % 4000 + 10 for i in range(8)]
    full.feed(0, ids[:-1])
    for _ in range(120):
        ids.append(int(full.score([0], [single(ids[-1])])[0].logits[0].argmax()))
        full.commit(0, [0])
    full.crop(0, 0)
    full_logits = full.score([0], [chain(ids)])[0].logits
    for dtype in ("float32", "bfloat16"):
        rounded = load(spec(POCKET, weights="int8", dtype=dtype))
        near = rounded.score([0], [chain(ids)])[0].logits.float()
        p, q = full_logits.log_softmax(-1), near.log_softmax(-1)
        divergence = (p.exp() * (p - q)).sum(-1)
        agreed = (full_logits.argmax(-1) == near.argmax(-1)).float().mean()
        assert 0 < divergence.mean() < 0.005  # nats; 0 would mean that nothing was rounded
        assert agreed > 0.95


def test_an_engine_says_that_its_weights_are_rounded_and_drafting_agrees_with_plain():
    engine = build(spec(POCKET, weights="int8", exit_layer=4))
    assert "rounded to 8 bits" in engine.facts.notes[0]
    prompt = tuple(IDS[:12] * 2)
    asked = [GenerationRequest(prompt, 24, drafter=d) for d in ("none", "lookup", "early_exit")]
    (plain, _), *others = [run_all(engine, [request])[0] for request in asked]
    assert all(ids == plain for ids, _ in others)


def test_float16_runs_near_float32(folder):
    full, half = load(spec(folder)), load(spec(folder, dtype="float16"))
    wanted, found = (target.score([0], [chain(IDS[:40])])[0].logits for target in (full, half))
    assert found.dtype == torch.float16
    assert (found.float() - wanted).abs().max() < 0.02 * wanted.abs().max()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "int4"}, "weights 'int4' are unknown; choose full or int8"),
        ({"weights": "int8", "dtype": "float16"}, "choose bfloat16 or float32"),
    ],
)
def test_what_does_not_exist_is_refused(folder, changes, message):
    with pytest.raises(ModelUnusable, match=message):
        load(spec(folder, **changes))
