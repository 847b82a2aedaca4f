"""The law that tokens follow: warps do what their definitions say and nothing else."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequest, NumericalError
from engine.request import SamplingParams
from engine.speculation.sampling import probabilities

LAW = torch.tensor([0.5, 0.25, 0.15, 0.1], dtype=torch.float64)
LOGITS = LAW.log()


def test_temperature_one_without_filters_is_softmax():
    assert torch.allclose(probabilities(LOGITS, SamplingParams(1.0)), LAW)


def test_temperature_sharpens():
    sharp = probabilities(LOGITS, SamplingParams(0.5))
    assert torch.allclose(sharp, LAW**2 / (LAW**2).sum())


def test_zero_temperature_is_one_hot_at_the_first_largest():
    tied = torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])
    assert probabilities(tied, SamplingParams()).tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(1.0, top_k=2), [0, 1]),
        (SamplingParams(1.0, top_k=9), [0, 1, 2, 3]),
        (SamplingParams(1.0, top_p=0.5), [0]),
        (SamplingParams(1.0, top_p=0.51), [0, 1]),  # the token that crosses stays
        (SamplingParams(1.0, top_p=0.01), [0]),  # never empty
        (SamplingParams(1.0, min_p=0.4), [0, 1]),
        (SamplingParams(1.0, top_k=3, top_p=0.8, min_p=0.1), [0, 1]),
    ],
)
def test_filters_keep_the_right_tokens(params, kept):
    law = probabilities(LOGITS, params)
    assert law.nonzero().flatten().tolist() == kept
    assert torch.allclose(law[kept], LAW[kept] / LAW[kept].sum())


def test_nucleus_keeps_the_likeliest_tokens():
    """A published reference sorts one way and cuts the other: it drops the two likeliest of these."""
    law = torch.tensor([0.05, 0.045] + [0.905 / 40] * 40)
    kept = probabilities(law.log(), SamplingParams(1.0, top_p=0.9)) > 0
    assert kept[0]
    assert kept[1]


@given(
    st.lists(st.integers(-300, 300).map(lambda n: n / 10), min_size=2, max_size=20),
    st.floats(0.05, 5),
    st.integers(0, 25),
    st.floats(0.01, 1),
    st.floats(0, 0.99),
)
def test_a_law_is_a_law_and_the_likeliest_token_survives(logits, temperature, top_k, top_p, min_p):
    row = torch.tensor(logits, dtype=torch.float64)
    before = row.clone()
    law = probabilities(row, SamplingParams(temperature, top_k, top_p, min_p))
    assert float(law.sum()) == pytest.approx(1)
    assert bool((law >= 0).all())
    assert law[row.argmax()] == law.max()
    assert torch.equal(row, before)  # arguments are never modified


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(math.nan), SamplingParams(math.inf), SamplingParams(-0.1), SamplingParams(101),
        SamplingParams(top_p=0), SamplingParams(top_p=1.1), SamplingParams(top_p=math.nan),
        SamplingParams(min_p=1), SamplingParams(min_p=-0.1), SamplingParams(top_k=-1),
        SamplingParams(seed=-1), SamplingParams(seed=2**63),
    ],
)  # fmt: skip
def test_values_without_meaning_are_refused(params):
    with pytest.raises(InvalidRequest, match="choose"):
        params.check()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 1, 70, 4999])
@pytest.mark.parametrize(
    "params",
    [SamplingParams(), SamplingParams(1.0), SamplingParams(0.7), SamplingParams(1.0, top_p=0.9)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_broken_logits_are_refused(wrong, place, params, dtype):
    rows = torch.zeros(3, 5000, dtype=dtype)
    rows[1, place] = wrong
    with pytest.raises(NumericalError):
        probabilities(rows, params)
    with pytest.raises(NumericalError):
        probabilities(rows[1], params)
    assert torch.isfinite(probabilities(rows[2], params)).all()


@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(1.0), SamplingParams(0.7, top_k=2)]
)
def test_a_row_in_which_nothing_can_come_is_refused(params):
    with pytest.raises(NumericalError):
        probabilities(torch.full((9,), -math.inf), params)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [1e-20, 1e-38, 1e-50, 5e-324])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}])
def test_the_smallest_temperature_is_a_law_too(temperature, filters):
    law = probabilities(torch.tensor([-30.0, 30.0, 29.0]), SamplingParams(temperature, **filters))
    assert law.tolist() == [0, 1, 0]
