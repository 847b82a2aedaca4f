"""The largest logits of a row are found, and few others are read."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.speculation.top_k import BLOCK, ROW_BLOCK, SHORT, RowBlocks, top_k
from tests.engine.speculation.rows import peaked_row


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
