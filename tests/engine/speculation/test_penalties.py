"""Penalties at one node are those of its own path; the laws over whole answers are in tests/laws."""

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.request import Penalties, SamplingParams
from engine.speculation.penalties import REPEAT_WINDOW, penalised
from engine.speculation.tree import DraftTree, single

VOCAB = 7
TREE = DraftTree((1, 2, 3, 3, 2), (-1, 0, 0, 1, 3))  # 1 -> 2 -> 3 -> 2, and 1 -> 3
IDS = [4, 5, 6, 1]  # of which 4 and 5 are the prompt

penalties = st.builds(
    Penalties,
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    repeat=st.floats(0.5, 2),
    bias=st.just(((0, 3.0), (6, -100.0))) | st.just(()),
)


def rows(count, seed=0):
    return torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@given(penalties, st.integers(0, 99))
def test_law_a_node_has_what_its_path_alone_would_give(asked, seed):
    logits = rows(len(TREE), seed)
    before = logits.clone()
    whole = penalised(TREE, logits, asked, IDS, 2)
    for node, path in enumerate([[], [2], [3], [2, 3], [2, 3, 2]]):
        alone = penalised(single(1), logits[node : node + 1], asked, [*IDS, *path], 2)
        torch.testing.assert_close(whole[node], alone[0])
    assert torch.equal(logits, before)


@given(st.floats(0.5, 2), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30))
def test_repeat_is_the_penalty_that_transformers_has(factor, ids):
    logits = rows(1, len(ids))
    theirs = transformers.RepetitionPenaltyLogitsProcessor(factor)
    wanted = theirs(torch.tensor([ids]), logits.clone())
    found = penalised(single(ids[-1]), logits, Penalties(repeat=factor), ids, 1)
    torch.testing.assert_close(found, wanted)


def test_what_was_said_long_ago_may_be_said_again():
    logits = torch.ones(1, VOCAB)
    for filler, held in ((REPEAT_WINDOW - 1, 0.5), (REPEAT_WINDOW, 1.0)):
        ids = [3, *[4] * filler]
        found = penalised(single(4), logits, Penalties(repeat=2.0), ids, 1)
        assert float(found[0, 3]) == held
        assert float(found[0, 4]) == 0.5


def test_the_prompt_counts_for_repeat_alone():
    found = penalised(single(1), torch.ones(1, VOCAB), Penalties(1.0, 0.5), [2, 2, 3, 3, 1], 2)
    assert found[0].tolist() == [1, -0.5, 1, -1, 1, 1, 1]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Penalties(presence=101.0), "presence penalty is 101.0"),
        (Penalties(frequency=float("nan")), "frequency penalty is nan"),
        (Penalties(repeat=0.0), "repeat penalty is 0.0"),
        (Penalties(repeat=float("inf")), "repeat penalty is inf"),
        (Penalties(bias=((3, 1e9),)), "bias of token 3 is"),
    ],
)
def test_values_without_a_meaning_are_refused(asked, said):
    with pytest.raises(InvalidRequest, match=said):
        SamplingParams(penalties=asked).check()
