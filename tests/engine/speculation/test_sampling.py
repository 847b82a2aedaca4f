"""Logits become the distribution that temperature and filters define."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import InvalidRequest, NumericalError
from engine.request import SamplingParams
from engine.speculation.sampling import filter_batched, filter_by_row, probabilities
from engine.speculation.top_k import BLOCK, ROW_BLOCK, SHORT, RowBlocks, top_k

LAW = torch.tensor([0.5, 0.25, 0.15, 0.1], dtype=torch.float64)
LOGITS = LAW.log()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_temperature_sharpens(temperature):
    law = LAW ** (1 / temperature)
    assert torch.allclose(probabilities(LOGITS, SamplingParams(temperature)), law / law.sum())


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
    """A published reference sorts one way and cuts the other: it drops the two most likely of these."""
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
def test_probabilities_sum_to_one_and_the_most_likely_token_stays(
    logits, temperature, top_k, top_p, min_p
):
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
def test_invalid_values_are_refused(params):
    with pytest.raises(InvalidRequest, match="choose"):
        params.check()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 1, 70, 4999])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(1.0),
        SamplingParams(0.7),
        SamplingParams(1.0, top_p=0.9),
        SamplingParams(1.0, top_k=3),
    ],
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
def test_a_row_without_a_possible_token_is_refused(params):
    with pytest.raises(NumericalError):
        probabilities(torch.full((9,), -math.inf), params)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [1e-20, 1e-38, 1e-50, 5e-324])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}])
def test_the_smallest_temperatures_work(temperature, filters):
    law = probabilities(torch.tensor([-30.0, 30.0, 29.0]), SamplingParams(temperature, **filters))
    assert law.tolist() == [0, 1, 0]


# Row by row on the CPU equals the batched operations.


def peaked_row(size: int, seed: int, peaks: int = 10) -> torch.Tensor:
    """Logits [V] with a few peaks, as models have. Float64, so that rounding makes no ties."""
    random = np.random.default_rng(seed)
    logits = 2 * random.standard_normal(size)
    logits[random.integers(0, size, min(peaks, size))] += np.linspace(12, 3, min(peaks, size))
    return torch.from_numpy(logits)


SIZES = (2, 7, ROW_BLOCK - 1, ROW_BLOCK, 3 * ROW_BLOCK + 5, 80 * ROW_BLOCK, 300 * ROW_BLOCK + 17)
KINDS = [
    SamplingParams(0.7, top_k=20, top_p=0.8),
    SamplingParams(0.7, top_p=0.9),
    SamplingParams(1.0, top_k=40),
    SamplingParams(1.0, top_k=1),
    SamplingParams(1.0, min_p=0.05),
    SamplingParams(0.8, top_k=40, top_p=0.95, min_p=0.05),
    SamplingParams(1.3, top_p=0.999),
    SamplingParams(5.0, top_p=0.6),  # a nearly flat distribution
    SamplingParams(1e-3, top_p=0.5),
    SamplingParams(1.0, top_k=10**6, top_p=0.5),
]


@pytest.mark.parametrize("params", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_row_by_row_equals_batched(size, params):
    for seed in range(5):
        logits = peaked_row(size, seed)
        one, other = filter_by_row(logits, params), filter_batched(logits, params)
        assert torch.equal(one > 0, other > 0)
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("params", KINDS)
def test_rows_of_any_shape_and_dtype_are_filtered_alone(params):
    rows = torch.stack([peaked_row(3 * ROW_BLOCK, seed) for seed in range(6)])
    laws = filter_by_row(rows.reshape(2, 3, -1), params)
    assert laws.shape == (2, 3, 3 * ROW_BLOCK)
    assert torch.equal(
        laws.reshape(6, -1), torch.stack([filter_by_row(one, params) for one in rows])
    )
    strided = torch.stack((rows, rows), -1)[..., 0]
    assert not strided.is_contiguous()
    assert torch.equal(filter_by_row(strided, params), laws.reshape(6, -1))
    single = filter_by_row(rows.float(), params)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), laws.reshape(6, -1), atol=1e-5)


@given(
    st.lists(st.sampled_from([-math.inf, -3.0, 0.0, 1.0, 1.5]), min_size=1, max_size=12),
    st.integers(0, 14),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.3, 0.7]),
)
@example([0.0, 0.0, 0.0, 0.0], 2, 0.5, 0.0)
def test_ties_and_impossible_tokens(logits, top_k, top_p, min_p):
    """All ties at a top-k are kept, the first ones at the cut of a nucleus, impossible tokens never."""
    logits = torch.tensor([*logits, 1.5], dtype=torch.float64)  # one token is always possible
    params = SamplingParams(1.0, top_k, top_p, min_p)
    one, other = filter_by_row(logits, params), filter_batched(logits, params)
    assert float(one.sum()) == pytest.approx(1)
    assert not bool((one > 0)[logits == -math.inf].any())
    assert torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("params", KINDS)
def test_where_a_grammar_leaves_few_tokens_no_others_are_read(params):
    logits = torch.full((300 * ROW_BLOCK + 17,), -math.inf, dtype=torch.float64)
    allowed = [3, 70, 71, 200 * ROW_BLOCK, 300 * ROW_BLOCK + 16]
    logits[allowed] = torch.tensor([0.3, 1.0, 0.2, 2.0, 1.5], dtype=torch.float64)
    blocks = RowBlocks(logits.numpy())
    assert blocks.reaching(blocks.threshold(64)).tolist() == allowed
    one, other = filter_by_row(logits, params), filter_batched(logits, params)
    assert torch.equal(one > 0, other > 0)
    assert torch.allclose(one, other, rtol=1e-9)


# The largest logits of a row are found, and few others are read.


@given(
    st.integers(1, 3), st.integers(8, 1400), st.integers(1, 8), st.integers(0, 99), st.booleans()
)
def test_it_equals_torch_topk(rows, vocab, count, seed, long):
    vocab += SHORT * long
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    found, wanted = top_k(logits, count), logits.topk(count)
    assert torch.equal(found.values, wanted.values)
    assert torch.equal(logits.gather(1, found.indices), wanted.values)  # of equals any


@pytest.mark.parametrize("vocab", [9 * BLOCK + 5, SHORT + 5])
def test_tokens_after_the_last_whole_block_are_found(vocab):
    logits = torch.zeros(1, vocab)
    logits[0, -1], logits[0, 3] = 2.0, 1.0
    assert top_k(logits, 2).indices.tolist() == [[vocab - 1, 3]]


def test_impossible_tokens_are_the_smallest():
    logits = torch.full((2, SHORT + 5), -torch.inf)
    logits[0, 70], logits[1, SHORT + 4] = -5.0, 3.0
    assert top_k(logits, 1).indices.tolist() == [[70], [SHORT + 4]]


@given(st.integers(1, 40 * ROW_BLOCK), st.integers(1, 300), st.integers(0, 99))
def test_a_threshold_keeps_all_of_the_largest(size, count, seed):
    logits = np.random.default_rng(seed).integers(0, 1000, size).astype(np.float32)
    blocks = RowBlocks(logits)
    bound = blocks.threshold(count)
    tokens = blocks.reaching(bound)
    assert np.array_equal(tokens, np.flatnonzero(logits >= bound))
    assert len(tokens) >= min(count, size)


def test_a_threshold_keeps_few_tokens_of_a_large_vocabulary():
    blocks = RowBlocks(peaked_row(600 * ROW_BLOCK, 3).numpy())
    assert len(blocks.reaching(blocks.threshold(20))) < 100
    assert len(blocks.reaching(blocks.threshold(64))) < 300
