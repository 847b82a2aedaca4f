"""Packed maps are the same maps: values as F.linear, any shape, plain where packing is impossible."""

import pytest
import torch
import torch.nn.functional as F

from engine.decoder.decoder import Dense
from engine.platform.onednn_linear import (
    OneDnnLinear,
    OneDnnPacker,
    can_pack,
    choose_as_four,
    packed,
)
from tests.engine.tiny import tiny_weights

CPU = torch.device("cpu")
needs_packing = pytest.mark.skipif(
    not can_pack(CPU, torch.float32), reason="this machine's torch cannot pack weights"
)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a torch without oneDNN")
def test_it_still_applies_torch_has_the_operators_and_they_equal_linear():
    weight, x = torch.randn(64, 64), torch.randn(3, 64)
    with torch.inference_mode():
        found = torch.ops.mkldnn._linear_pointwise(
            x, torch.ops.mkldnn._reorder_linear_weight(weight, None), None, "none", [], ""
        )
    assert (found - F.linear(x, weight)).abs().max() < 1e-4
    assert can_pack(CPU, torch.float32)


def with_bias(weights):
    layer = weights.layers[0]
    assert isinstance(layer.qkv, Dense)
    return Dense(layer.qkv.weight, torch.randn(layer.qkv.weight.shape[0]))


def maps_of(weights):
    inner = [(each.qkv, each.out, each.gate_up, each.down) for each in weights.layers]
    return [weights.head, *(each for layer in inner for each in layer)]


@needs_packing
@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (33,), (3, 5)])
def test_a_packed_map_gives_the_plain_maps_values(shape):
    plain = with_bias(tiny_weights())
    layer = packed(tiny_weights()).layers[0].qkv
    assert isinstance(layer, OneDnnLinear)
    x = torch.randn(*shape, 32)
    near = F.linear(x, plain.weight)
    with torch.inference_mode():
        assert (layer(x) - near).abs().max() < 1e-5
        for as_four in (frozenset(), frozenset({1, 2})):  # few rows as four are the same rows
            found = OneDnnLinear(layer.weight, plain.bias, as_four)(x)
            assert found.shape == near.shape
            assert (found - near - plain.bias).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("seconds", "as_four"),
    [
        ({1: 25.3, 2: 30.0, 4: 22.7}, {1, 2}),  # with AVX-512
        ({1: 10.3, 2: 11.7, 4: 13.4}, set()),  # with AVX2 alone
        ({1: 20.0, 2: 30.0, 4: 25.0}, {2}),
    ],
)
def test_few_rows_go_as_four_where_four_take_less(seconds, as_four):
    assert choose_as_four(seconds.__getitem__) == as_four


@needs_packing
def test_each_shape_is_tried_once(monkeypatch):
    tried = []
    monkeypatch.setattr("engine.platform.onednn_linear.LARGE", 0)
    monkeypatch.setattr("engine.platform.onednn_linear.TRIAL", 2**12)
    monkeypatch.setattr(
        "engine.platform.onednn_linear.choose_as_four",
        lambda timed: tried.append(timed(1)) or frozenset({1}),
    )
    plain = tiny_weights()
    shapes = {each.weight.shape for each in maps_of(plain)}
    assert all(each.as_four == {1} for each in maps_of(packed(plain)))
    assert len(tried) == len(shapes)


def test_what_cannot_be_packed_stays_plain(monkeypatch):
    monkeypatch.setattr("engine.platform.onednn_linear.can_pack", lambda device, dtype: False)
    weights = tiny_weights()
    assert packed(weights) is weights


def test_another_device_and_a_torch_without_the_operator_cannot_pack(monkeypatch):
    assert not can_pack(torch.device("meta"), torch.float32)

    def gone(weight):
        raise AttributeError("no such operator")

    monkeypatch.setattr("engine.platform.onednn_linear.reordered", gone)
    assert not can_pack(CPU, torch.float32)


@needs_packing
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 64), (352, 128), (576, 1536), (896, 4864)])
def test_a_row_has_the_same_bits_in_passes_of_any_width(dtype, shape):
    if not can_pack(CPU, dtype):
        pytest.skip("this machine's torch cannot pack weights of this type")
    plain = Dense(torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype))
    linear = OneDnnPacker().map(plain)
    x = torch.randn(150, shape[1], generator=torch.Generator().manual_seed(2)).to(dtype)
    alone = torch.cat([linear(row.unsqueeze(0)) for row in x])
    for rows in (2, 3, 5, 16, 33, 64, 65, 128, 150):
        assert torch.equal(linear(x[:rows]), alone[:rows])
