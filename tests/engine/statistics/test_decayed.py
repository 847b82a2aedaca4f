"""Speedups: tokens over plain passes; old rounds fade, a prior counts for its weight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.statistics.decayed import Decayed, Speedup

rounds = st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 5.0)), min_size=1, max_size=30)


@given(rounds)
def test_without_fading_it_is_all_tokens_over_all_passes(found):
    speedup = Speedup()
    for tokens, passes in found:
        speedup.count(tokens, passes)
    whole = sum(passes for _, passes in found)
    assert speedup.value == pytest.approx(sum(tokens for tokens, _ in found) / whole)
    assert speedup.rounds == len(found)


def test_nothing_measured_is_plain_s_speedup_and_a_guess_is_the_guess():
    assert Speedup().value == 1.0
    assert Speedup().with_prior(1.3, 6.0).value == pytest.approx(1.3)
    assert Speedup(10.0, 5.0).with_prior(1.0, 5.0).value == pytest.approx(1.5)


# Decayed counts.


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0.1, 9)), max_size=60), st.floats(0.5, 1.0))
def test_decayed_counts_are_sums_weighed_by_age(found, memory):
    counts = Decayed()
    for hits, trials in found:
        counts.add(hits, trials, memory)
    ages = [memory**age for age in range(len(found) - 1, -1, -1)]
    assert counts.hits == pytest.approx(sum(a * h for a, (h, _) in zip(ages, found, strict=True)))
    assert counts.trials == pytest.approx(sum(a * t for a, (_, t) in zip(ages, found, strict=True)))


def test_a_prior_counts_for_its_weight_and_alone_where_nothing_is_known():
    assert Decayed().share(0.7) == Decayed().share(0.7, 4.0) == pytest.approx(0.7)
    assert Decayed(3.0, 4.0).share() == 0.75
    assert Decayed(3.0, 4.0).share(0.25, 4.0) == pytest.approx(0.5)
