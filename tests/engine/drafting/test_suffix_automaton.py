"""Suffix automaton against the definition, searched by brute force."""

from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.suffix_automaton import SuffixAutomaton


def longest_match(text):
    """(length, end): longest suffix that also ends earlier, and the newest such end."""
    for length in range(len(text) - 1, 0, -1):
        suffix = text[-length:]
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == suffix:
                return length, end
    return 0, 0


def fed(text):
    automaton = SuffixAutomaton()
    automaton.extend(text)
    return automaton


@given(st.lists(st.integers(0, 2), max_size=60))
def test_match_is_the_longest_and_the_newest(text):
    length, end = longest_match(text)
    found = fed(text).match()
    assert found[0] == length
    if length:
        assert found[1] == end


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 40))
def test_feeding_in_parts_changes_nothing(text, cut):
    automaton = fed(text[:cut])
    automaton.extend(text[cut:])
    assert automaton.match() == fed(text).match()


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 20), st.integers(1, 5))
def test_continuation_is_what_followed(text, count, min_match):
    found = fed(text).continuation(count, min_match)
    length, end = longest_match(text)
    if length < min_match:
        assert found == []
    else:
        assert len(found) == count
        assert found == [(text + found)[end + i] for i in range(count)]


def test_a_run_of_one_token_is_fast_enough():
    """A run is the worst case for keeping the newest end: the walk per token is bounded."""
    automaton = fed([5] * 4000)
    assert automaton.match()[0] == 3999
    assert automaton.continuation(4, 3) == [5, 5, 5, 5]
