"""Filters that look at few tokens keep what filters that look at all of them do."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import NumericalError
from engine.request import SamplingParams
from engine.speculation.filter_tokens import BLOCK, Blocks
from engine.speculation.sampling import at_once, shortlisted

SIZES = (2, 7, BLOCK - 1, BLOCK, 3 * BLOCK + 5, 80 * BLOCK, 300 * BLOCK + 17)
KINDS = [
    SamplingParams(0.7, top_k=20, top_p=0.8),
    SamplingParams(0.7, top_p=0.9),
    SamplingParams(1.0, top_k=40),
    SamplingParams(1.0, top_k=1),
    SamplingParams(1.0, min_p=0.05),
    SamplingParams(0.8, top_k=40, top_p=0.95, min_p=0.05),
    SamplingParams(1.3, top_p=0.999),
    SamplingParams(5.0, top_p=0.6),  # of a vocabulary that is nearly flat
    SamplingParams(1e-3, top_p=0.5),
    SamplingParams(1.0, top_k=10**6, top_p=0.5),
]


def row(size: int, seed: int, peaks: int = 10) -> torch.Tensor:
    """Logits as a model gives them: a few stand out. Float64, so that no two are equal by rounding."""
    random = np.random.default_rng(seed)
    logits = 2 * random.standard_normal(size)
    logits[random.integers(0, size, min(peaks, size))] += np.linspace(12, 3, min(peaks, size))
    return torch.from_numpy(logits)


@pytest.mark.parametrize("params", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_both_ways_give_the_same_law(size, params):
    for seed in range(5):
        logits = row(size, seed)
        one, other = shortlisted(logits, params), at_once(logits, params)
        assert torch.equal(one > 0, other > 0)
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("params", KINDS)
def test_rows_of_any_shape_and_number_format_keep_theirs(params):
    rows = torch.stack([row(3 * BLOCK, seed) for seed in range(6)])
    laws = shortlisted(rows.reshape(2, 3, -1), params)
    assert laws.shape == (2, 3, 3 * BLOCK)
    assert torch.equal(laws.reshape(6, -1), torch.stack([shortlisted(one, params) for one in rows]))
    strided = torch.stack((rows, rows), -1)[..., 0]
    assert not strided.is_contiguous()
    assert torch.equal(shortlisted(strided, params), laws.reshape(6, -1))
    single = shortlisted(rows.float(), params)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), laws.reshape(6, -1), atol=1e-5)


@given(
    st.lists(st.sampled_from([-math.inf, -3.0, 0.0, 1.0, 1.5]), min_size=1, max_size=12),
    st.integers(0, 14),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.3, 0.7]),
)
@example([0.0, 0.0, 0.0, 0.0], 2, 0.5, 0.0)
def test_equally_likely_tokens_and_forbidden_ones(logits, top_k, top_p, min_p):
    """Ties at a top-k stay, of ties at the cut of a nucleus the first ones; forbidden ones never."""
    logits = torch.tensor([*logits, 1.5], dtype=torch.float64)  # something is always allowed
    params = SamplingParams(1.0, top_k, top_p, min_p)
    one, other = shortlisted(logits, params), at_once(logits, params)
    assert float(one.sum()) == pytest.approx(1)
    assert not bool((one > 0)[logits == -math.inf].any())
    assert torch.allclose(one, other, atol=1e-12)


@given(st.integers(1, 40 * BLOCK), st.integers(1, 300), st.integers(0, 99))
def test_the_likeliest_are_all_there(size, count, seed):
    logits = np.random.default_rng(seed).integers(0, 1000, size).astype(np.float32)
    row = Blocks(logits)
    bound = row.least(count)
    tokens = row.reaching(bound)
    assert np.array_equal(tokens, np.flatnonzero(logits >= bound))
    assert len(tokens) >= min(count, size)


def test_of_a_large_vocabulary_few_are_looked_at():
    logits = Blocks(row(600 * BLOCK, 3).numpy())
    assert len(logits.reaching(logits.least(20))) < 100
    assert len(logits.reaching(logits.least(64))) < 300


@pytest.mark.parametrize("params", KINDS)
def test_where_a_format_leaves_few_tokens_no_others_are_looked_at(params):
    logits = torch.full((300 * BLOCK + 17,), -math.inf, dtype=torch.float64)
    allowed = [3, 70, 71, 200 * BLOCK, 300 * BLOCK + 16]
    logits[allowed] = torch.tensor([0.3, 1.0, 0.2, 2.0, 1.5], dtype=torch.float64)
    blocks = Blocks(logits.numpy())
    assert blocks.reaching(blocks.least(64)).tolist() == allowed
    one, other = shortlisted(logits, params), at_once(logits, params)
    assert torch.equal(one > 0, other > 0)
    assert torch.allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_broken_logits_are_refused(wrong):
    logits = row(3 * BLOCK, 1)
    logits[300] = wrong
    with pytest.raises(NumericalError):
        shortlisted(logits, SamplingParams(1.0, top_k=3))
    with pytest.raises(NumericalError):
        shortlisted(torch.full((5,), -math.inf), SamplingParams(1.0, top_k=3))
