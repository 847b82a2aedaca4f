"""Rounded rows times rounded weights: near the plain map, and a row's bits depend on that row alone."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.decoder.decoder import Dense
from engine.platform.native_linear import int8_kernel
from engine.platform.onednn_int8 import (
    LEVELS,
    STEPS,
    Rounded,
    can_multiply_rounded,
    packed,
    product,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["by torch", "by the kernel"])
def rounding(request, tmp_path_factory):
    """A plain map to a rounded one, with either product."""
    kernel = int8_kernel(tmp_path_factory.mktemp("kernel"))
    if request.param == "by torch":
        return lambda linear: Rounded.of(linear).packed()
    if kernel is None:
        pytest.skip("no C compiler here")
    return lambda linear: Rounded.of(linear).packed(kernel)


needs_products = pytest.mark.skipif(
    not can_multiply_rounded(CPU), reason="this processor or torch has no products of bytes"
)


def drawn(out, into, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(out, into, generator=generator)


@needs_products
def test_it_still_applies_torch_has_the_operator_and_its_sums_are_exact():
    levels = torch.randint(-STEPS, STEPS + 1, (96, 1024), dtype=torch.int8)
    rows = torch.randint(0, LEVELS + 1, (5, 1024), dtype=torch.uint8)
    found = product(rows, packed(levels), torch.ones(96))
    assert torch.equal(found.long(), rows.long() @ levels.long().t())


@needs_products
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shift", [0.0, 3.0, -3.0])
def test_a_product_is_near_the_plain_one(rounding, dtype, shift):
    plain = Dense(drawn(80, 256), drawn(1, 80)[0])
    x = drawn(9, 256, seed=1) + shift
    wanted, found = plain(x), rounding(plain)(x.to(dtype))
    assert found.dtype == dtype
    assert (found.float() - wanted).abs().mean() < 0.02 * wanted.abs().mean() + 0.01


@needs_products
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.sampled_from([(64, 64), (80, 96), (33, 127), (576, 1536), (49, 4864)]),
    rows=st.integers(1, 130),
    seed=st.integers(0, 99),
)
def test_a_row_has_the_same_bits_alone(rounding, shape, rows, seed):
    linear = rounding(Dense(drawn(*shape)))
    x = drawn(rows, shape[1], seed) * 10 ** drawn(rows, 1, seed + 1)
    together = linear(x)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(linear(x[row : row + 1])[0], together[row])


@needs_products
@pytest.mark.parametrize("value", [0.0, 5.0, -2.5])
def test_a_row_that_is_all_one_number_is_exact_up_to_the_weights_rounding(rounding, value):
    plain = Dense(drawn(64, 64))
    x = torch.full((2, 64), value)
    wanted = plain(x)
    assert (rounding(plain)(x) - wanted).abs().max() <= 0.5 * 64 * abs(
        value
    ) * plain.weight.abs().max() / STEPS


@needs_products
def test_weights_of_zeros_give_zeros_and_any_leading_shape_is_taken(rounding):
    linear = rounding(Dense(torch.zeros(64, 64)))
    found = linear(torch.randn(2, 3, 64))
    assert found.shape == (2, 3, 64)
    assert (found == 0).all()


def test_another_device_or_an_old_processor_has_none(monkeypatch):
    assert not can_multiply_rounded(torch.device("meta"))
    monkeypatch.setattr("engine.platform.onednn_int8.multiplies_int8", lambda: False)
    assert not can_multiply_rounded(CPU)


@needs_products
def test_what_is_not_a_number_stays_visible(rounding):
    x = torch.randn(3, 64)
    x[1, 40] = float("nan")
    found = rounding(Dense(drawn(64, 64)))(x)
    assert found[[0, 2]].isfinite().all()
    assert not found[1].isfinite().any()
