"""How far to copy now: the promised gains are those of the definition."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interfaces.drafter import Budget
from engine.speculation.copy_planning import LATER, copy_gains

CHANCES = st.lists(st.floats(0.01, 1.0), max_size=12).map(lambda c: sorted(c, reverse=True))
COSTS = st.lists(st.floats(0.0, 8.0), min_size=2, max_size=14).map(sorted)


def defined(chances, costs):
    """A round's gain as the equation says it: conditional chances, from the first token down."""
    alive = [1.0, *chances]

    def brought(i, rows):
        right = sum(alive[i : i + rows + 1]) / alive[i]
        after = i + rows + 1
        lives = alive[after] / alive[i] * left(after) if after < len(alive) else 0.0
        return right - costs[rows] + lives

    @cache
    def left(i):
        able = [n for n in (0, *LATER) if n < len(costs) and i + n < len(alive)]
        return max(0.0, *(brought(i, n) for n in able))

    return [brought(0, rows) for rows in range(min(len(alive), len(costs)))]


@given(CHANCES, COSTS)
def test_gains_are_those_of_the_equation(chances, costs):
    assert copy_gains(chances, costs) == pytest.approx(defined(chances, costs))


@given(CHANCES, COSTS)
def test_a_copy_that_may_go_on_is_worth_no_less(chances, costs):
    alone = [1 + sum(chances[:n]) - cost for n, cost in enumerate(costs[: len(chances) + 1])]
    found = copy_gains(chances, costs)
    assert all(whole >= part - 1e-9 for whole, part in zip(found, alone, strict=True))
    if len(costs) > len(chances):
        assert found[-1] == pytest.approx(alone[-1])  # nothing is left of it then


@pytest.mark.parametrize("text", range(34, 39))
def test_a_text_a_little_longer_than_the_longest_draft_takes_two_drafts(
    text,
):
    prices = tuple(0.06 * max(0, n - 5) for n in range(33))
    first = Budget(32, 32, prices=prices, pace=2.3).worth(
        [0.6 * 0.99**i for i in range(text)], copied=True
    )
    assert 0 < first.drafted <= 32
    assert text - (first.drafted + 1) <= 32
