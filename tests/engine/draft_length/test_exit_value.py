"""What exits cost and bring: the paper's numbers, and measured costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_length.exit_value import ExitCost, best_exit
from engine.draft_length.tuning import TUNING
from engine.statistics.pass_cost import PassCost
from tests.engine.draft_length.exits import context, drafted, flat, units

CERTAIN = TUNING.max_acceptance

# Choice.


def test_the_papers_example():
    alpha = np.zeros(31)
    alpha[[3, 5, 7, 11, 15]] = 0.45, 0.6, 0.7, 0.8, 0.86
    choice = best_exit(alpha, units(32, 17))
    assert (choice.exit, choice.depth) == (8, 2)
    assert choice.rate == pytest.approx(0.0456, abs=5e-5)
    assert choice.rate * 32 == pytest.approx(1.46, abs=5e-3)


@given(st.lists(st.floats(0, CERTAIN), min_size=1, max_size=7), st.integers(1, 18))
def test_the_choice_is_the_best_of_all_exits_and_depths(alpha, depth):
    layers = len(alpha) + 1
    choice = best_exit(np.asarray(alpha), units(layers, depth))
    tokens = {(at, d): sum(a**i for i in range(d + 1)) for at, a in enumerate(alpha, 1)
              for d in range(depth + 1)}  # fmt: skip
    rates = {(at, d): found / (d * at + layers) for (at, d), found in tokens.items()}
    assert choice.rate == pytest.approx(max(rates.values()))
    assert rates[choice.exit, choice.depth] == pytest.approx(choice.rate)


def test_plain_decoding_where_no_exit_pays():
    assert best_exit(np.zeros(7), units(8, 18)).depth == 0
    break_even = np.array([1 / 8, 2 / 8])  # (1 + a) / (1 + l / L) is 1: ties go to plain decoding
    cost = units(8, 1)[:2]
    assert best_exit(break_even, cost).depth == 0
    assert best_exit(break_even + 0.01, cost).depth == 1


# Cost.


def test_unmeasured_costs_are_the_papers_units():
    cost_of = ExitCost(PassCost(), 8)
    assert cost_of.table([context()], 6) * 8 == pytest.approx(units(8, 6))


def test_measured_steps_become_a_line_over_the_exit_layer():
    """A step is 3 + 2 l milliseconds here: head and overhead weigh most at shallow exits."""
    cost_of = ExitCost(flat(), 8)
    for n in range(400):
        layer, depth = 1 + n % 7, 1 + n % 3
        cost_of.observe([drafted(depth, layer, depth * (0.003 + 0.002 * layer))])
    table = cost_of.table([context()], 4)
    assert table[:, 0] == pytest.approx(0.1)
    for layer in (1, 4, 7):
        assert table[layer - 1, 4] == pytest.approx(0.1 + 4 * (0.003 + 0.002 * layer), rel=1e-3)


def test_requests_of_one_exit_take_their_steps_together():
    cost_of = ExitCost(flat(), 8)
    for _ in range(400):
        cost_of.observe([drafted(2, 2, 0.08, request=r) for r in (1, 2)] + [drafted(1, 4, 0.08, 3)])
    table, step = cost_of.table([context()], 1), 0.08 / 3
    between = (table[1, 1] * 2 + table[3, 1]) / 3 - 0.1  # exits 2, 2 and 4: a line has their mean
    assert between == pytest.approx(step, rel=0.02)


def test_a_slow_first_call_does_not_overturn_the_costs():
    cost_of = ExitCost(flat(), 8)
    cost_of.observe([drafted(1, 2, 60.0)])
    assert cost_of.table([context()], 1)[1, 1] < 0.1 * (1 + 4 * 2 / 8)
