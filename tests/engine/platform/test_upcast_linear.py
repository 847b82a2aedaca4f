"""Upcast maps are the same maps: products of 16-bit weights in float32, rounded once."""

import pytest
import torch

from engine.decoder.decoder import Dense
from engine.models.own import precision
from engine.models.own.int8 import Int8, Int8Quantiser
from engine.models.own.target import load
from engine.platform import upcast_linear as upcast
from engine.platform.instructions import instruction_sets
from engine.platform.upcast_linear import (
    EVERY,
    TRIED,
    Upcaster,
    UpcastLinear,
    Widening,
    choose_alone,
    wide_type,
)
from engine.request import ModelSpec
from engine.speculation.tree import DraftTree, chain, single
from tests.bundled import POCKET

CPU = torch.device("cpu")
HALVES = (torch.bfloat16, torch.float16)


def weight(out, into, dtype):
    return torch.randn(out, into, generator=torch.Generator().manual_seed(out)).to(dtype)


@pytest.fixture
def lacking(monkeypatch):
    """A processor that multiplies float32 alone, whatever this one does."""
    for module in (upcast, precision):
        monkeypatch.setattr(module, "can_pack", lambda device, dtype: dtype == torch.float32)
    monkeypatch.setattr(precision, "bfloat16_kernel", lambda: None)
    monkeypatch.setattr(upcast, "SMALL", 0)
    monkeypatch.setattr(upcast, "choose_alone", lambda timed: 2)


def test_it_still_applies_or_says_why_not():
    """The trick is for processors that lack bfloat16; there the kernel for it must be missing."""
    native = {"avx512_bf16", "amx_bf16", "bf16"} & set(instruction_sets())
    if native and wide_type(CPU, torch.bfloat16) == torch.bfloat16:
        pytest.skip(f"not needed: this processor has {', '.join(sorted(native))}")
    maps = Upcaster(Widening(), exact=False)
    found = maps.map(Dense(weight(512, 512, torch.bfloat16)))
    assert isinstance(found, UpcastLinear)
    assert found.alone in {0, *TRIED, EVERY}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (20,), (2, 9)])
def test_a_map_is_the_plain_map_rounded_once(dtype, biased, swaps, shape, monkeypatch):
    monkeypatch.setattr(upcast, "BLOCK", 640)  # rows of 64 in runs of ten, the last one shorter
    widening = Widening()
    if swaps and not widening.swaps:
        pytest.skip("this machine's torch cannot pack")
    widening.swaps = swaps
    plain = weight(37, 64, dtype)
    bias = torch.linspace(-1, 1, 37).to(dtype) if biased else None
    x = torch.randn(*shape, 64, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.inference_mode():
        found = UpcastLinear(plain, bias, 2, widening)(x)
    exact = x.double() @ plain.double().T + (0 if bias is None else bias.double())
    step = torch.finfo(dtype).eps * exact.abs()  # half of it, and what sums lose
    assert found.dtype == dtype
    assert found.shape == (*shape, 37)
    alone = x.reshape(-1, 64).shape[0] <= 2  # by torch, which may round a sum before the bias
    assert ((found.double() - exact).abs() <= (2.5 if alone else 0.6) * step + 1e-3).all()


@pytest.mark.parametrize("block", [upcast.BLOCK, 50])  # a row longer than a block is a block
def test_blocks_are_the_weight_in_order_and_float32_is_not_copied(block, monkeypatch):
    monkeypatch.setattr(upcast, "BLOCK", block)
    widening = Widening()
    halves = weight(*((3, 64) if block == 50 else (3000, 700)), torch.bfloat16)
    parts = [(first, part.clone()) for first, part in widening.blocks(halves)]
    assert len(parts) > 1
    assert torch.equal(torch.cat([part for _, part in parts]), halves.float())
    for first, part in parts:
        assert torch.equal(part, halves[first : first + len(part)].float())
    full = halves.float()
    assert [part.data_ptr() for _, part in widening.blocks(full)] == [full.data_ptr()]


@pytest.mark.parametrize(
    ("plain", "blocks", "alone"),
    [
        ({n: 1.7 + 1.5 * n for n in TRIED}, dict.fromkeys(TRIED, 9.0), 4),  # with AVX2 alone
        ({n: 5.0 + 0.2 * n for n in TRIED}, dict.fromkeys(TRIED, 9.0), EVERY),
        (dict.fromkeys(TRIED, 9.0), dict.fromkeys(TRIED, 3.0), 0),
    ],
)
def test_rows_go_in_float32_from_where_that_is_faster(plain, blocks, alone):
    assert choose_alone(lambda rows: (plain[rows], blocks[rows])) == alone


def test_what_is_tried_is_tried_once_for_all_maps(monkeypatch, lacking):
    tried = []
    monkeypatch.setattr(upcast, "TRIAL", 2**12)
    monkeypatch.setattr(upcast, "choose_alone", lambda timed: tried.append(timed(2)) or 2)
    upcasting = Upcaster(Widening(), exact=False)
    maps = [upcasting.map(Dense(weight(n, 64, torch.bfloat16))) for n in (40, 50, 60)]
    assert [type(each) for each in maps] == [UpcastLinear] * 3
    assert len({each.widening for each in maps}) == 1
    [(plain, blocks)] = tried
    assert min(plain, blocks) > 0


def test_small_maps_stay_plain():
    small = Dense(weight(8, 8, torch.bfloat16))
    assert Upcaster(Widening(), exact=False).map(small) is small


def test_only_what_a_processor_lacks_is_widened(lacking):
    assert [wide_type(CPU, dtype) for dtype in (*HALVES, torch.float32)] == [torch.float32] * 3
    assert wide_type(torch.device("cuda"), torch.bfloat16) == torch.bfloat16


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_in_halves_is_near_itself_in_float32_in_steps_trees_and_prompts(dtype, lacking):
    full, half = (load(ModelSpec("p", str(POCKET), dtype=d)) for d in ("float32", dtype))
    assert isinstance(half.weights.layers[0].qkv, UpcastLinear)
    assert isinstance(half.weights.head, UpcastLinear)
    ids = [(37 * i) % 4000 + 10 for i in range(40)]
    tree = DraftTree((5, 6, 7, 8, 9), (-1, 0, 0, 1, 2))
    found = []
    for target in (full, half):
        logits = [target.score([0], [chain(ids)])[0].logits.float()]
        target.crop(0, 0)
        target.feed(0, ids)
        logits += [target.score([0], [t])[0].logits.float() for t in (single(5), tree)]
        found.append(torch.cat(logits))
    assert found[1].isfinite().all()
    assert (found[0] - found[1]).abs().max() < 0.08 * found[0].abs().max()


def test_rounded_weights_are_widened_too(lacking, monkeypatch):
    monkeypatch.setattr("engine.platform.onednn_int8.multiplies_int8", lambda: False)
    plain, x = weight(40, 64, torch.bfloat16), torch.randn(30, 64).bfloat16()
    rounded = Int8Quantiser(Widening()).map(Dense(plain))
    exact = x.double() @ (rounded.rows.double() * rounded.scale.double()[:, None]).T
    assert (rounded(x).double() - exact).abs().max() < 0.01 * exact.abs().max()
    model = load(ModelSpec("p", str(POCKET), dtype="bfloat16", weights="int8"))
    assert isinstance(model.weights.head, Int8)
    assert model.weights.head.widening is not None
