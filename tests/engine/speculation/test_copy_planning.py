"""How far to copy now: the promised gains against the definition, and what they make of rows' prices."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.match_confidence import MatchConfidence
from engine.interfaces.drafter import Budget
from engine.speculation.copy_planning import LATER, copy_gains

CHANCES = st.lists(st.floats(0.01, 1.0), max_size=12).map(lambda c: sorted(c, reverse=True))
COSTS = st.lists(st.floats(0.0, 8.0), min_size=2, max_size=14).map(sorted)
DEAR = [11.2, 16.2, 20.5, 30.4, 36.6, 42.8, 50.0, 57.4, *[61.0] * 7, 67.0]  # ms, 4-bit weights
DEAR = [ms / DEAR[0] for ms in DEAR]


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


def longest(chances, costs):
    found = copy_gains(chances, costs)
    return max(range(len(found)), key=found.__getitem__)


def behind(match):
    """Chances behind a match of so many tokens, before anything was measured."""
    return MatchConfidence().survival(match, 15)


@pytest.mark.parametrize(("match", "drafted"), [(4, 2), (6, 2), (8, 14), (12, 14)])
def test_a_doubtful_copy_is_tried_with_few_rows_where_rows_are_dear(match, drafted):
    """By itself the wide round brings most behind each of them, and a third of it would be wrong."""
    assert longest(behind(match), DEAR) == drafted
    alone = [sum(behind(match)[:n]) - cost for n, cost in enumerate(DEAR)]
    assert max(alone) == alone[14]


def test_a_copy_that_the_next_token_decides_is_waited_for():
    unlikely = [0.8 * chance for chance in behind(4)]
    assert longest(unlikely, DEAR) == 0
    assert max(sum(unlikely[:n]) - cost + 1 for n, cost in enumerate(DEAR)) > 0.3


def test_a_sure_copy_is_taken_whole():
    assert longest([0.99**n for n in range(1, 16)], DEAR) == 15


def test_where_rows_are_free_everything_is_copied_and_where_nothing_helps_nothing():
    assert longest([0.5**n for n in range(1, 9)], [1.0] * 9) == 8
    assert longest([0.5**n for n in range(1, 9)], [1.0 + n for n in range(9)]) == 0
    assert longest([], [1.0]) == 0


@pytest.mark.parametrize("text", range(34, 39))
def test_of_a_text_a_little_longer_than_the_longest_draft_so_much_comes_first_that_one_more_ends_it(
    text,
):
    prices = tuple(0.06 * max(0, n - 5) for n in range(33))
    first = Budget(32, 32, prices=prices, pace=2.3).worth(
        [0.6 * 0.99**i for i in range(text)], copied=True
    )
    assert 0 < first.drafted <= 32
    assert text - (first.drafted + 1) <= 32
