"""What exits cost and bring: the paper's numbers, and measured costs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_length.exit_value import ExitCost, RoundCost, best_exit, best_rate
from engine.draft_length.tuning import TUNING
from engine.statistics.pass_cost import PassCost
from tests.engine.draft_length.exits import chains, context, drafted, flat, odds, units

CERTAIN = TUNING.exit_max_acceptance

# Choice.


def test_the_papers_example():
    alpha = np.zeros(31)
    alpha[[3, 5, 7, 11, 15]] = 0.45, 0.6, 0.7, 0.8, 0.86
    choice = best_exit(odds(alpha), chains(32, 17))
    assert (choice.exit, choice.depth) == (8, 2)
    assert choice.rate == pytest.approx(0.0456, abs=5e-5)
    assert choice.rate * 32 == pytest.approx(1.46, abs=5e-3)


@given(st.lists(st.floats(0, CERTAIN), min_size=1, max_size=7), st.integers(1, 18))
def test_the_choice_is_the_best_of_all_exits_and_depths(alpha, depth):
    layers = len(alpha) + 1
    choice = best_exit(odds(alpha), chains(layers, depth))
    tokens = {(at, d): sum(a**i for i in range(d + 1)) for at, a in enumerate(alpha, 1)
              for d in range(depth + 1)}  # fmt: skip
    rates = {(at, d): found / (d * at + layers) for (at, d), found in tokens.items()}
    assert choice.rate == pytest.approx(max(rates.values()))
    assert rates[choice.exit, choice.depth] == pytest.approx(choice.rate)


def test_plain_decoding_where_no_exit_pays():
    assert best_exit(odds(np.zeros(7)), chains(8, 18)).depth == 0
    break_even = np.array([1 / 8, 2 / 8])  # (1 + a) / (1 + l / L) is 1: ties go to plain decoding
    cost = RoundCost(units(8, 1)[:2].astype(float))
    assert best_exit(odds(break_even), cost).depth == 0
    assert best_exit(odds(break_even + 0.01), cost).depth == 1


# Cost.


def test_unmeasured_costs_are_the_papers_units():
    cost_of = ExitCost(PassCost(), 8, paper=False)
    assert cost_of.table([context()], 6).chains * 8 == pytest.approx(units(8, 6))


def test_the_papers_units_on_request():
    cost = ExitCost(flat(seconds=77.0), 4, paper=True)
    cost.observe([drafted(2, 2, 5.0)])
    assert cost.table([context()], 3).chains * 4 == pytest.approx(units(4, 3))


def test_measured_steps_become_a_line_over_the_exit_layer():
    """A step is 3 + 2 l milliseconds here: head and overhead weigh most at shallow exits."""
    cost_of = ExitCost(flat(), 8, paper=False)
    for n in range(400):
        layer, depth = 1 + n % 7, 1 + n % 3
        cost_of.observe([drafted(depth, layer, depth * (0.003 + 0.002 * layer))])
    table = cost_of.table([context()], 4).chains
    assert table[:, 0] == pytest.approx(0.1)
    for layer in (1, 4, 7):
        assert table[layer - 1, 4] == pytest.approx(0.1 + 4 * (0.003 + 0.002 * layer), rel=1e-3)


def test_requests_of_one_exit_take_their_steps_together():
    cost_of = ExitCost(flat(), 8, paper=False)
    for _ in range(400):
        cost_of.observe([drafted(2, 2, 0.08, request=r) for r in (1, 2)] + [drafted(1, 4, 0.08, 3)])
    table, step = cost_of.table([context()], 1).chains, 0.08 / 3
    between = (table[1, 1] * 2 + table[3, 1]) / 3 - 0.1  # exits 2, 2 and 4: a line has their mean
    assert between == pytest.approx(step, rel=0.02)


def test_a_slow_first_call_does_not_overturn_the_costs():
    cost_of = ExitCost(flat(), 8, paper=False)
    cost_of.observe([drafted(1, 2, 60.0)])
    assert cost_of.table([context()], 1).chains[1, 1] < 0.1 * (1 + 4 * 2 / 8)


# Width.


def stepped(most=13, free=6):
    """A pass of 1 to ``free`` rows takes 0.1 seconds, each row more another 0.05."""
    return PassCost({rows: 0.1 + 0.05 * max(0, rows - free) for rows in range(1, most + 1)})


@given(
    st.lists(st.floats(0, CERTAIN), min_size=1, max_size=5),
    st.lists(st.floats(0, 0.3), min_size=3, max_size=3),
    st.integers(1, 12),
    st.integers(1, 2),
)
def test_the_choice_is_the_best_of_all_widths_too(alpha, shares, depth, requests):
    layers = len(alpha) + 1
    cost = stepped(most=26)
    batch = [context(n, ids=[]) for n in range(requests)]
    table = ExitCost(cost, layers, paper=False).table(batch, depth)
    caught = [*sorted(shares, reverse=True), 0, 0, 0, 0]
    found = best_exit(odds(alpha, [caught] * len(alpha)), table)
    rates = {}
    for at, a in enumerate(alpha, 1):
        share = at / layers
        for d, width in product(range(depth + 1), (1, 2, 3, 4, 6, 8)):
            beside = d * (width - 1)
            if d + beside > depth:
                continue
            tokens = sum(a**i for i in range(d + 1))
            tokens += sum(a**i * (1 - a) * sum(caught[: width - 1]) for i in range(d))
            below = cost.seconds(requests * (1 + beside))
            above = cost.seconds(requests * (1 + d + beside))
            seconds = d * share * cost.seconds(requests) + share * below + (1 - share) * above
            rates[at, d, width] = tokens / seconds
    assert found.rate == pytest.approx(max(rates.values()))
    assert found.depth == 0 or rates[found.exit, found.depth, found.width] == pytest.approx(
        found.rate
    )
    kept = max(rate for (at, _, _), rate in rates.items() if at == 1)
    assert best_rate(1, odds(alpha, [caught] * len(alpha)), table) == pytest.approx(kept)


def test_unmeasured_passes_leave_chains():
    table = ExitCost(PassCost(), 4, paper=False).table([context()], 6)
    caught = [[0.5, 0.2, 0.1, 0, 0, 0, 0]] * 3
    assert best_exit(odds([0.6, 0.7, 0.8], caught), table).width == 1
    assert np.isinf(table.wide(2)).all()
    assert table.siblings(1, 2).tolist() == [0.0]


def test_siblings_cost_what_they_add_to_a_round():
    table = ExitCost(stepped(), 4, paper=False).table([context(ids=[])], 12)
    for layer, depth in ((1, 1), (2, 3), (3, 2)):
        beside = table.siblings(layer, depth)
        assert len(beside) == 12 - depth + 1
        for width in (1, 2, 4):
            extra = table.wide(width)[layer - 1, depth] - table.chains[layer - 1, depth]
            if np.isfinite(extra):
                assert beside[depth * (width - 1)] == pytest.approx(extra)


def test_of_fewer_levels_there_is_less_room():
    table = ExitCost(stepped(), 4, paper=False).table([context(ids=[])], 12)
    here = table.upto(3)
    assert here.chains.shape == (3, 4)
    assert len(here.siblings(1, 2)) == 2
    assert np.isinf(here.wide(3)[:, 2]).all()


def test_layers_that_do_not_stay_are_no_exits_at_any_width():
    table = ExitCost(stepped(), 4, paper=False).table([context(ids=[])], 12).shallower(1, 1e9)
    caught = [[0.5, 0.2, 0.1, 0, 0, 0, 0]] * 3
    assert best_exit(odds([0.3, 0.99, 0.99], caught), table).exit == 1
