"""Digits between bounds are the numbers between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.formats.json_text import grammar
from app.text.formats.scalars import FARTHEST, between
from engine.grammar.states import DEAD, States


def held(states, number):
    state = states.walk(states.start, str(number).encode())
    return state != DEAD and states.accepts(state)


bounds = st.integers(-(10**6), 10**6) | st.integers(-99, 99) | st.none()


@given(bounds, bounds, st.lists(st.integers(-2 * 10**6, 2 * 10**6), max_size=20))
def test_law_a_number_passes_exactly_within_its_bounds(one, other, asked):
    low, high = (one, other) if None in (one, other) else (min(one, other), max(one, other))
    states = States(grammar(between(low, high)))
    near = [n + d for n in (low, high, 0) if n is not None for d in (-1, 0, 1)]
    for number in (*asked, *near):
        within = (low is None or low <= number) and (high is None or number <= high)
        assert held(states, number) == within


@pytest.mark.parametrize("text", ["00", "01", "-0", "-00", "+1", "1.0", "1e3", "", "-"])
def test_a_number_is_written_in_one_way(text):
    states = States(grammar(between(-100, 100)))
    state = states.walk(states.start, text.encode())
    assert state == DEAD or not states.accepts(state)


def test_digits_have_an_end():
    states = States(grammar(between(None, None)))
    assert held(states, FARTHEST)
    assert held(states, -FARTHEST)
    assert not held(states, FARTHEST + 1)
