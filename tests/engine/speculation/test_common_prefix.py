"""What two sequences begin with, by its definition."""

from hypothesis import given
from hypothesis import strategies as st

from engine.speculation.common_prefix import common_prefix

IDS = st.lists(st.integers(0, 1), max_size=6)


@given(begin=IDS, one=IDS, other=IDS)
def test_all_before_it_is_the_same_and_what_follows_is_not(begin, one, other):
    left, right = [*begin, *one], (*begin, *other)
    assert common_prefix(left, list(right)) == common_prefix(left, right)
    found = common_prefix(left, right)
    assert found >= len(begin)
    assert found == common_prefix(right, left)
    assert left[:found] == list(right[:found])
    assert found in (len(left), len(right)) or left[found] != right[found]


def test_of_texts_too():
    assert common_prefix("drafted", "draughts") == 3
    assert common_prefix("", "plain") == 0
