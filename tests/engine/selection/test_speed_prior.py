"""Forecasts are the paces of chains by enumeration, and plain's where no length pays."""

import pytest
from engine.selection.speed_prior import BEST_SHARE, LONGEST, USUAL_SHARE, expected_speed
from hypothesis import given
from hypothesis import strategies as st

from engine.statistics.pass_cost import PassCost


def curve(*seconds):
    cost = PassCost()
    for rows, each in enumerate(seconds, 1):
        cost.profile(rows, each)
    return cost


def expected(share, length):
    """Tokens of a round by all ways in which it can end: i tokens hold and the next one does not."""
    ends = [share**i * (1 - share) * (i + 1) for i in range(length)]
    return sum(ends) + share**length * (length + 1)


@given(st.floats(0, 2), st.floats(0.01, 1))
def test_a_forecast_is_the_best_chain_counted_by_its_ends(step, row):
    cost = curve(*(1 + row * n for n in range(LONGEST + 1)))
    for found, share in zip(expected_speed(cost, step), (USUAL_SHARE, BEST_SHARE), strict=True):
        paces = [
            expected(share, k) / (1 + row * k + k * step) if k else 1.0 for k in range(LONGEST + 1)
        ]
        assert found == pytest.approx(max(paces))


def test_a_step_that_takes_a_pass_promises_nothing_and_a_free_one_all_that_holds():
    flat = curve(*[1.0] * (LONGEST + 1))
    assert expected_speed(flat, 1.0) == (1.0, 1.0)
    assert expected_speed(flat, 0.0)[1] == pytest.approx(expected(BEST_SHARE, LONGEST))
