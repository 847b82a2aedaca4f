"""Counted tokens of a thought: up to its end, however the text is cut into tokens."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.reasoning.count import ReasoningCount


def counted(tokens, begun=""):
    count = ReasoningCount(begun)
    for token in tokens:
        count.add(token)
    return count.tokens


@pytest.mark.parametrize(
    ("tokens", "begun", "expected"),
    [
        (["<think>", "So", "</think>", "Five", "."], "", 3),
        (["\n", "<", "think", ">", "So", "</", "think>\n\n", "Five"], "", 7),
        (["", "<think>", "", "so"], "", 4),
        (["So", " it", "</think>", "Five"], "<think>\n", 3),
        (["so it", "</think>", "Five"], "<think>\nI think ", 2),
        (["Five", "<think>", "no", "</think>"], "", 0),
        (["<", "b>", "bold"], "", 0),
        (["more"], "<think>a</think>Five, and ", 0),
        ([], "<think>", 0),
    ],
)
def test_up_to_the_end_of_the_thought(tokens, begun, expected):
    assert counted(tokens, begun) == expected


@given(cuts=st.lists(st.integers(0, 45)), said=st.sampled_from(["Five.", "", "a <think> b"]))
def test_the_token_that_ends_it_is_the_last_of_it(cuts, said):
    """Wherever tokens begin and end."""
    thought = " <think>\nso < / it is</think>"
    text = thought + said
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    tokens = [text[a:b] for a, b in pairwise(places)]
    expected = sum(place < len(thought) for place in places[:-1])
    assert counted(tokens) == expected
