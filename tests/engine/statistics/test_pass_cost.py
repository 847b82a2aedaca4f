"""Measured cost: curves pass through what was measured, never fall, follow a busy machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.statistics.pass_cost import UNKNOWN_SECONDS, DraftCost, LinearFit, PassCost
from engine.statistics.tuning import TUNING

seconds = st.floats(1e-5, 10)


def profiled(points):
    cost = PassCost()
    for rows, value in points.items():
        cost.profile(rows, value)
    return cost


def test_an_unmeasured_pass_costs_the_same_whatever_its_width():
    assert PassCost().seconds(1) == PassCost().seconds(64) == UNKNOWN_SECONDS


def test_the_curve_passes_through_its_knots_and_between_them():
    cost = profiled({1: 1.0, 8: 2.4, 64: 10.0})
    assert [cost.seconds(n) for n in (1, 8, 64)] == pytest.approx([1.0, 2.4, 10.0])
    assert cost.seconds(4) == pytest.approx(1.6)
    assert cost.seconds(128) == pytest.approx(10.0 + 64 * 7.6 / 56)  # as steep as the last piece


def test_the_smallest_of_several_profiles_counts():
    cost = profiled({1: 3.0})
    cost.profile(1, 1.0)
    cost.profile(1, 2.0)
    assert cost.seconds(1) == pytest.approx(1.0)


def test_context_adds_a_line():
    cost = profiled({1: 1.0})
    cost.profile_context(500, {1: 2.0})
    assert cost.seconds(1, 1000) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("late", "rows", "context", "requests", "seconds"),
    [
        ({1: 2.0, 16: 19.0}, 8, 500, 1, 2.0 + 8),  # every row reads the context by itself
        ({1: 2.0, 16: 19.0}, 8, 1000, 2, 2.0 + 8),  # each of two requests has half of both
        ({1: 2.0, 16: 4.0}, 8, 500, 1, 2.0 + 1),  # it is read once for all rows
        ({1: 2.0, 16: 11.5}, 8, 500, 1, 2.0 + 0.5 + 8 / 2),  # in part
        ({1: 2.0, 16: 3.0}, 8, 500, 1, 2.0 + 1),  # a measurement that cannot be: as if read once
        ({1: 1.0, 16: 90.0}, 8, 500, 1, 2.0),  # one row says that reading takes nothing
    ],
)
def test_a_row_takes_its_own_part_of_the_context(late, rows, context, requests, seconds):
    cost = profiled({1: 1.0, 8: 2.0, 16: 3.0})
    cost.profile_context(500, late)
    assert cost.seconds(rows, context, requests) == pytest.approx(seconds)
    assert cost.each([rows], context, requests) == pytest.approx([seconds])


def test_passes_over_long_texts_leave_the_curve_as_it_was():
    cost = profiled({1: 1.0, 16: 3.0})
    cost.profile_context(500, {1: 2.0, 16: 19.0})
    for _ in range(500):
        for rows in (1, 16):
            cost.observe(rows, 2000, cost.nominal(rows, 2000))
    assert cost.nominal(16) == pytest.approx(3.0)


@given(st.dictionaries(st.integers(1, 256), seconds, min_size=1, max_size=6), st.integers(1, 255))
def test_more_rows_never_cost_less(points, rows):
    cost = profiled(points)
    assert cost.seconds(rows + 1) >= cost.seconds(rows) * (1 - 1e-9)


@given(st.dictionaries(st.integers(1, 256), seconds, max_size=6), st.integers(0, 900))
def test_many_widths_at_once_cost_what_each_costs(points, context):
    cost = profiled(points)
    cost.per_context, cost.load, cost.overhead = 1e-4, 1.3, 0.002
    cost.per_row = 3e-5
    widths = [1, 2, 3, 17, 64, 300]
    found = cost.each(widths, context)
    assert found == pytest.approx([cost.seconds(n, context) for n in widths])


def test_a_busy_machine_makes_every_width_slower():
    cost = profiled({1: 1.0, 8: 2.0})
    for _ in range(60):
        cost.observe(1, 0, 3.0)
    assert cost.seconds(1) == pytest.approx(3.0, rel=0.1)
    assert cost.seconds(8) / cost.seconds(1) == pytest.approx(2.0, rel=0.35)


def test_a_wrong_profile_is_bent_to_what_is_observed():
    cost = profiled({1: 1.0, 8: 8.0})
    for _ in range(300):
        cost.observe(1, 0, 1.0)
        cost.observe(8, 0, 2.0)
    assert cost.seconds(8) / cost.seconds(1) == pytest.approx(2.0, rel=0.15)


def test_the_load_of_the_machine_bends_no_curve():
    cost = profiled({1: 1.0, 8: 1.5})
    for load in (1.0, 1.6, 0.7) * 20:
        for _ in range(10):
            cost.observe(8, 0, 1.5 * load)  # one width alone cannot be distinguished from the load
    assert cost.seconds(8) / cost.seconds(1) == pytest.approx(1.5)


def test_widths_in_the_wrong_order_share_their_mean_and_nothing_winds_up():
    cost = profiled({1: 1.2, 2: 1.2, 4: 1.0, 8: 1.3})
    assert cost.seconds(1) == cost.seconds(4) == pytest.approx(3.4 / 3)
    for _ in range(500):
        for rows, value in ((1, 1.2), (4, 1.0), (8, 1.3)):
            cost.observe(rows, 0, value)
    assert cost.seconds(4) / cost.seconds(1) == pytest.approx(1.0)
    assert cost.seconds(8) / cost.seconds(1) == pytest.approx(1.18, rel=0.05)
    assert cost.knots[1] < 1.5


def test_a_row_is_worth_what_its_seconds_bring_to_all_requests_of_the_pass():
    cost = profiled({1: 1.0, 3: 1.5, 5: 2.0})
    assert cost.prices(1.0, 2) == pytest.approx((0.0, 0.25, 0.5))
    assert cost.prices(2.0, 2) == pytest.approx((0.0, 0.5, 1.0))
    assert cost.prices(1.0, 2, requests=3) == pytest.approx((0.0, 0.5, 1.0))


def test_one_pause_of_the_machine_changes_little():
    cost = profiled({1: 1.0})
    cost.observe(1, 0, 1000.0)
    assert cost.seconds(1) < 1 + TUNING.outlier


@given(st.lists(st.tuples(st.integers(1, 64), seconds), min_size=1, max_size=50))
def test_whatever_is_observed_costs_stay_positive_and_finite(passes):
    cost = profiled({1: 0.01, 16: 0.02})
    for rows, value in passes:
        cost.observe(rows, 10, value)
    assert all(0 < cost.seconds(n) < 1e6 for n in (1, 2, 16, 64))


def test_a_line_recovers_itself_and_has_no_negative_part():
    line = LinearFit()
    for x in (1, 4, 2, 8) * 10:
        line.add(x, 3 + 2 * x)
    assert line.at(5) == pytest.approx(13)
    falling = LinearFit()
    for x in (1, 4, 2, 8) * 10:
        falling.add(x, 100 - x)
    assert falling.at(1) == pytest.approx(falling.at(8))


def test_a_line_through_one_place_rises_half_as_fast_as_it_could():
    line = LinearFit()
    for _ in range(9):
        line.add(1, 2.0)
    assert [line.at(x) for x in (0, 1, 3)] == pytest.approx([1.0, 2.0, 4.0])


@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_a_draft_costs_its_steps_and_the_rows_in_them(share):
    """Of several requests, some of which leave off early; loads that were never seen as well."""
    cost = DraftCost()
    assert cost.seconds(4, 4) == 0
    for steps, rows in ((1, 1), (4, 4), (2, 8), (6, 12), (3, 3), (5, 20)) * 8:
        cost.observe(steps, rows, 0.5 + steps + share * (rows - steps))
    for steps, rows in ((1, 1), (8, 8), (2, 6), (8, 40)):
        assert cost.seconds(steps, rows) == pytest.approx(0.5 + steps + share * (rows - steps))
    assert cost.seconds(0, 0) == 0


def test_a_draft_that_never_ran_costs_what_was_measured_at_load():
    cost = DraftCost(step=0.2)
    assert cost.seconds(3, 3) == pytest.approx(0.6)
    assert 0.6 < cost.seconds(3, 12) < 2.4


def test_one_pause_of_the_machine_makes_no_other_share_the_nearest():
    cost = DraftCost()
    for steps, rows in ((1, 1), (4, 4), (2, 8), (6, 12)) * 8:
        cost.observe(steps, rows, steps + 0.6 * (rows - steps))
    cost.observe(2, 8, 400.0)
    cost.observe(2, 8, 2 + 0.6 * 6)
    assert cost.parts().row > 0.5 * cost.parts().step


def test_a_reset_curve_remembers_nothing_that_ran():
    cost = PassCost({1: 1.0, 8: 2.0})
    for _ in range(9):
        cost.observe(1, 0, 3.0, overhead=0.5)
        cost.observe(40, 0, 30.0)
    cost.reset({1: 1.0, 8: 2.0})
    assert (cost.seconds(1), cost.seconds(8), cost.seconds(40)) == (1.0, 2.0, 2.0 + 32 / 7)
    assert (cost.knots, cost.load, cost.overhead) == ({1: 1.0, 8: 2.0}, 1.0, 0.0)


def test_a_pause_next_to_a_pass_counts_for_no_more_than_the_pass():
    cost, calm = profiled({1: 1.0}), profiled({1: 1.0})
    cost.observe(1, 0, 1.0, overhead=3600.0)
    calm.observe(1, 0, 1.0, overhead=1.0)
    assert cost.seconds(1) == pytest.approx(calm.seconds(1))


def test_an_unmeasured_width_moves_only_its_own_knot():
    cost = profiled({1: 1.0, 4: 2.0})
    cost.observe(1, 0, 1.0)
    cost.observe(64, 0, 200.0)
    assert (cost.knots[1], cost.knots[4]) == (1.0, 2.0)
    assert cost.knots[64] > 22.0
