"""Priced lengths: what gains most over its rows' price is drafted, and nothing where nothing does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_length.priced import Priced
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, RowPrices
from engine.request import Prior, SamplingParams
from engine.speculation.copy_planning import copy_gains
from engine.speculation.tree import chain
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost

CONTEXT = Context(1, 0, [1, 2], SamplingParams(), None)


def charged(budget):
    """What rows must bring, as prices and pace say together."""
    return tuple(budget.pace * price for price in budget.prices)


def priced(knots):
    cost = PassCost()
    for rows, seconds in knots.items():
        cost.profile(rows, seconds)
    return Priced(DrafterResources(None, cost=cost), "lookup")


@given(
    st.lists(st.floats(0.0, 1.0), max_size=12).map(lambda chances: sorted(chances, reverse=True)),
    st.lists(st.floats(0.0, 3.0), min_size=13, max_size=13).map(sorted),
)
def test_no_other_number_of_candidates_gains_more(chances, prices):
    prices = tuple(price - prices[0] for price in prices)
    drafted, expected, later = Budget(12, 12, prices=prices).worth(chances)
    assert later == 0
    assert expected == pytest.approx(sum(chances[:drafted]))
    copy_gains = [sum(chances[:n]) - prices[n] for n in range(len(chances) + 1)]
    assert copy_gains[drafted] == pytest.approx(max(copy_gains))
    assert copy_gains[drafted] >= 0


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).map(lambda c: sorted(c, reverse=True)),
    st.lists(st.floats(0.0, 3.0), min_size=12, max_size=12).map(sorted),
    st.floats(0.5, 4.0),
)
def test_what_is_hopeless_would_not_have_been_drafted(chances, prices, pace):
    budget = RowPrices.of((0.0, *prices)).budget(
        Budget(64, 12), Budget(12, 256), pace, stake=max(prices)
    )
    scaled = Budget(12, 12, prices=(0.0, *(pace * price for price in prices)))
    assert budget.worth(chances) == scaled.worth(chances)
    if budget.hopeless(chances[0]):
        drafted, expected, _ = budget.worth(chances)
        assert expected <= scaled.prices[drafted] + 1e-9  # nothing is lost by drafting nothing


@given(
    st.lists(st.floats(0.0, 1.0), max_size=12).map(lambda chances: sorted(chances, reverse=True)),
    st.lists(st.floats(0.0, 3.0), min_size=12, max_size=12).map(sorted),
    st.floats(0.5, 4.0),
)
def test_of_a_copy_what_gains_most_with_all_that_follows_is_drafted(chances, prices, pace):
    prices = (0.0, *prices)
    budget = Budget(12, 12, prices=prices, pace=pace)
    drafted, expected, later = budget.worth(chances, copied=True)
    found = copy_gains(chances, [pace * (1 + price) for price in prices])
    assert found[drafted] == max(found)
    alone = 1 + expected - pace * (1 + prices[drafted])
    assert alone + later == pytest.approx(max(found))
    assert later >= -1e-9  # a living copy can be left
    assert expected == pytest.approx(sum(chances[:drafted]))


def test_where_rows_are_dear_a_sure_copy_is_taken_in_parts():
    """Rows of 0.4 passes, as 4-bit weights have them on a processor: a slip may cost 9 passes."""
    dear, sure = (0.0, *(0.17 + 0.4 * n for n in range(32))), [0.98**n for n in range(1, 33)]
    assert Budget(32, 32, prices=dear).worth(sure)[0] == 32
    assert 4 <= Budget(32, 32, prices=dear).worth(sure, copied=True)[0] <= 10


def test_an_exact_budget_is_never_hopeless():
    assert Budget(3, 3, prices=(0.0, 0.5, 1.0), cheapest=0.5).hopeless(0.4)
    assert not Budget(3, 3, exact=True, prices=(0.0, 0.5, 1.0), cheapest=0.5).hopeless(0.4)


def test_an_exact_budget_is_spent_whole_and_a_floor_cuts():
    chances = [0.9, 0.5, 0.1]
    assert Budget(3, 3, exact=True, prices=(0.0, 9.0, 9.0, 9.0)).worth(chances)[0] == 3
    assert Budget(3, 3, floor=0.3).worth(chances) == (2, pytest.approx(1.4), 0)


def test_rows_cost_what_they_take_at_the_request_s_own_rate():
    policy = priced({1: 1.0, 5: 2.0})
    [budget] = policy.budgets([CONTEXT], [Budget(4, 4)])
    assert charged(budget) == pytest.approx((0.0, 0.25, 0.5, 0.75, 1.0))
    for _ in range(200):  # three tokens in every pass of one row's seconds
        policy.observe([Outcome(CONTEXT, chain([2, 3, 4]), Verdict((0, 1, 2), 5), 0.0, 1.0)])
    [budget] = policy.budgets([CONTEXT], [Budget(4, 4)])
    assert charged(budget) == pytest.approx((0.0, 0.75, 1.5, 2.25, 3.0), rel=0.02)
    policy.forget(1)
    assert charged(policy.budgets([CONTEXT], [Budget(4, 4)])[0])[4] == pytest.approx(1.0)


def test_a_request_starts_at_the_pace_of_earlier_sessions():
    prior = {"lookup": Prior("lookup", pace=2.0, pace_weight=50.0)}
    policy = priced({1: 1.0, 5: 2.0})
    [budget] = policy.budgets([replace(CONTEXT, priors=prior)], [Budget(4, 4)])
    assert charged(budget) == pytest.approx((0.0, 0.5, 1.0, 1.5, 2.0))
    for _ in range(200):
        policy.observe([Outcome(CONTEXT, chain([2]), Verdict((0,), 5), 0.0, 1.0)])
    assert charged(policy.budgets([CONTEXT], [Budget(4, 4)])[0])[4] == pytest.approx(1.0, rel=0.02)
