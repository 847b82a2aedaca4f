"""What exits cost and bring: the paper's numbers, and measured costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cost import PassCost
from engine.lengths.exit_value import ExitCost, best_exit
from engine.lengths.shadow_tokens import CERTAIN
from tests.engine.lengths.counted import context, drafted, flat, units

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
    choice = best_exit(np.array(alpha), units(layers, depth))
    tokens = {(at, d): sum(a**i for i in range(d + 1)) for at, a in enumerate(alpha, 1)
              for d in range(depth + 1)}  # fmt: skip
    rates = {(at, d): found / (d * at + layers) for (at, d), found in tokens.items()}
    assert choice.rate == pytest.approx(max(rates.values()))
    assert rates[choice.exit, choice.depth] == pytest.approx(choice.rate)


def test_plain_decoding_where_no_exit_pays():
    assert best_exit(np.zeros(7), units(8, 18)).depth == 0
    break_even = np.array([1 / 8, 2 / 8])  # (1 + a) / (1 + l / L) is 1: ties go to plain decoding
    assert best_exit(break_even, units(8, 1)[:2]).depth == 0
    assert best_exit(break_even + 0.01, units(8, 1)[:2]).depth == 1


# Cost.


def test_unmeasured_costs_are_the_papers_units():
    pace = ExitCost(PassCost(), 8, paper=False)
    assert pace.table([context()], 6) * 8 == pytest.approx(units(8, 6))


def test_measured_steps_become_a_line_over_the_exit_layer():
    """A step is 3 + 2 l milliseconds here: head and overhead weigh most at shallow exits."""
    pace = ExitCost(flat(), 8, paper=False)
    for n in range(400):
        layer, depth = 1 + n % 7, 1 + n % 3
        pace.observe([drafted(depth, layer, depth * (0.003 + 0.002 * layer))])
    table = pace.table([context()], 4)
    assert table[:, 0] == pytest.approx(0.1)
    for layer in (1, 4, 7):
        assert table[layer - 1, 4] == pytest.approx(0.1 + 4 * (0.003 + 0.002 * layer), rel=1e-3)


def test_requests_of_one_exit_take_their_steps_together():
    pace = ExitCost(flat(), 8, paper=False)
    for _ in range(400):
        pace.observe([drafted(2, 2, 0.08, request=r) for r in (1, 2)] + [drafted(1, 4, 0.08, 3)])
    share, step = (2 * 2 + 1 * 4) / 3 / 8, 0.08 / 3
    assert pace._step.at(share) * 0.1 == pytest.approx(step, rel=0.02)


def test_a_slow_first_call_does_not_overturn_the_costs():
    pace = ExitCost(flat(), 8, paper=False)
    pace.observe([drafted(1, 2, 60.0)])
    assert pace.table([context()], 1)[1, 1] < 0.1 * (1 + 4 * 2 / 8)


def test_wide_passes_cost_what_they_cost():
    cost = flat()
    cost.profile(5, 0.5)
    table = ExitCost(cost, 4, paper=False).table([context(ids=[])], 4)
    assert table[0, 4] == pytest.approx(4 * 0.025 + 0.25 * 0.1 + 0.75 * 0.5)
    assert table[0, 0] == pytest.approx(0.1)
