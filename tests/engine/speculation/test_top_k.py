"""The largest of a row, with a bound for what has to be looked at."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.speculation.top_k import BLOCK, SHORT, top_k


@given(
    st.integers(1, 3), st.integers(8, 1400), st.integers(1, 8), st.integers(0, 99), st.booleans()
)
def test_largest_is_topk(rows, vocab, count, seed, long):
    vocab += SHORT * long
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    found, wanted = top_k(logits, count), logits.topk(count)
    assert torch.equal(found.values, wanted.values)
    assert torch.equal(logits.gather(1, found.indices), wanted.values)  # of equals any


@pytest.mark.parametrize("vocab", [9 * BLOCK + 5, SHORT + 5])
def test_largest_finds_what_stands_behind_the_last_whole_block(vocab):
    logits = torch.zeros(1, vocab)
    logits[0, -1], logits[0, 3] = 2.0, 1.0
    assert top_k(logits, 2).indices.tolist() == [[vocab - 1, 3]]


def test_forbidden_tokens_are_the_smallest():
    logits = torch.full((2, SHORT + 5), -torch.inf)
    logits[0, 70], logits[1, SHORT + 4] = -5.0, 3.0
    assert top_k(logits, 1).indices.tolist() == [[70], [SHORT + 4]]
