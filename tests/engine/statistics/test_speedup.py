"""Pace: tokens over plain passes; memory fades, a guess counts for what it is told to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.statistics.speedup import EVIDENCE, SLOW, Calibration, CopyShare, Speedup

rounds = st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 5.0)), min_size=1, max_size=30)


@given(rounds)
def test_without_fading_it_is_all_tokens_over_all_passes(found):
    pace = Speedup()
    for tokens, passes in found:
        pace.add(tokens, passes)
    whole = sum(passes for _, passes in found)
    assert pace.value == pytest.approx(sum(tokens for tokens, _ in found) / whole)
    assert pace.lost == pytest.approx(whole - sum(tokens for tokens, _ in found))
    assert pace.rounds == len(found)


@given(rounds, st.floats(0.1, 50.0))
def test_a_lighter_pace_is_the_same_pace_and_no_heavier(found, most):
    pace = Speedup()
    for tokens, passes in found:
        pace.add(tokens, passes, 0.9)
    lighter = pace.weighing(most)
    assert lighter.value == pytest.approx(pace.value)
    assert lighter.passes <= min(most, pace.passes) * (1 + 1e-9)


def test_nothing_measured_is_plain_s_pace_and_a_guess_is_the_guess():
    assert Speedup().value == 1.0
    assert Speedup().guessed(1.3, 6.0).value == pytest.approx(1.3)
    assert Speedup(10.0, 5.0).guessed(1.0, 5.0).value == pytest.approx(1.5)


@given(rounds, st.floats(0.5, 3.0), st.floats(0.1, 9.0), st.floats(0.0, 0.5))
def test_what_is_hoped_of_an_arm_is_its_pace_with_a_guess_and_luck(found, guess, passes, credit):
    pace = Speedup()
    for tokens, seconds in found:
        pace.add(tokens, seconds)
    wanted = pace.guessed(guess, passes).lucky(credit)
    assert pace.hoped(guess, passes, credit) == pytest.approx(wanted)


def test_luck_is_granted_to_few_rounds_only():
    assert Speedup(2.0, 1.0, 1).lucky(0.5) == pytest.approx(3.0)
    assert Speedup(2.0, 1.0, 10_000).lucky(0.5) == pytest.approx(2.0, rel=0.01)


def test_what_a_round_takes_is_followed():
    pace = Speedup()
    for _ in range(100):
        pace.add(2.0, 1.6, 0.9)
    assert pace.length == pytest.approx(1.6, rel=0.01)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=60))
def test_the_share_that_is_not_copied_is_of_faded_tokens_and_all_of_them_at_first(found):
    origins = CopyShare()
    assert origins.drafted == 1.0
    for tokens, copied in found:
        origins.add(tokens, copied=copied)
    ages = [SLOW**age for age in range(len(found) - 1, -1, -1)]
    guess = EVIDENCE * SLOW ** len(found)
    weighed = list(zip(found, ages, strict=True))
    other = guess + sum(age * tokens for (tokens, copied), age in weighed if not copied)
    every = guess + sum(age * tokens for (tokens, _), age in weighed)
    assert origins.drafted == pytest.approx(other / every)


def test_who_expects_too_little_is_not_believed_to_bring_more():
    luck = Calibration()
    luck.add(9.0, 1.0)
    assert luck.value == 1.0
    luck.add(0.0, 90.0)
    assert luck.value < 0.3


def test_earlier_sessions_luck_is_never_more_than_all():
    luck = Calibration()
    luck.believe(3.0)
    luck.add(0.0, EVIDENCE)
    assert luck.value == pytest.approx(SLOW / (1 + SLOW))
