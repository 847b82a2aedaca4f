"""What a race says of its lanes, from runs whose figures are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.compare.result import Judge, LaneResult
from app.bench.verify import Difference
from tests.app.bench.compare.runs import DEPTHS, run

answers = st.lists(st.integers(0, 3), min_size=1, max_size=8).map(tuple)


def results(*rounds: dict[str, tuple[tuple[int, ...], float]]) -> tuple[LaneResult, ...]:
    judge = Judge((0.5, 0.25, 0.125, 2.0), lambda ids: f"<{ids[0]}>")
    made = [{name: run(name, *told) for name, told in one.items()} for one in rounds]
    return judge.results(tuple(rounds[0]), made)


@given(answers, answers)
def test_lanes_agree_exactly_where_their_tokens_do(plain, drafted):
    _, lookup = results({"none": (plain, 10.0), "lookup": (drafted, 20.0)})
    assert (lookup.difference is None) == (plain == drafted)


def test_a_difference_tells_round_place_words_and_gap():
    _, lookup = results(
        {"none": ((1, 2, 3), 10.0), "lookup": ((1, 2, 3), 10.0)},
        {"none": ((1, 2, 3), 10.0), "lookup": ((1, 9, 3), 10.0)},
    )
    assert lookup.difference == Difference(2, 1, 2, 9, 0.25)
    assert lookup.words == ("<2>", "<9>")


def test_an_answer_that_ends_early_has_no_word_there():
    _, lookup = results({"none": ((1, 2), 10.0), "lookup": ((1,), 10.0)})
    assert lookup.difference == Difference(1, 1, 2, None, 0.25)
    assert lookup.words == ("<2>", "")


def test_speedup_is_the_median_over_plain_of_the_same_round():
    """A machine that is slow for one round slows both lanes: their ratio stays."""
    ids = (1, 2, 3, 4)
    plain, lookup = results(
        {"none": (ids, 10.0), "lookup": (ids, 20.0)},
        {"none": (ids, 1.0), "lookup": (ids, 3.0)},
        {"none": (ids, 10.0), "lookup": (ids, 40.0)},
    )
    assert lookup.speedups == pytest.approx((2.0, 3.0, 4.0))
    assert lookup.speedup == pytest.approx(3.0)
    assert (plain.speedup, plain.speedups) == (None, ())
    assert lookup.rate == pytest.approx(20.0)
    assert lookup.shown.rate == pytest.approx(20.0)


def test_counts_are_added_over_rounds():
    told = {"none": ((1, 2, 3, 4), 10.0), "lookup": ((1, 2, 3, 4), 10.0)}
    plain, lookup = results(told, told)
    assert (plain.tokens_per_pass, lookup.tokens_per_pass) == (1.0, 2.0)
    assert (lookup.drafted, lookup.accepted) == (16, 4)
    assert [one.evaluated for one in lookup.depths] == [2 * one.evaluated for one in DEPTHS]
