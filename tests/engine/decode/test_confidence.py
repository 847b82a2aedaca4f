"""Confidence in matches: the guess, what measurements make of it, and how far a draft reaches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decode.confidence import CERTAIN, LONGEST, Confidence

NOTES = st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60)


def taught(notes):
    confidence = Confidence()
    for length, hit in notes:
        confidence.learn(length, [7], [7 if hit else 8])
    return confidence


def test_before_anything_is_known_longer_matches_are_surer():
    known = [Confidence().at(length) for length in range(1, LONGEST + 1)]
    assert known == sorted(known)
    assert known[0] == pytest.approx(0.6)
    assert Confidence().at(1000) == known[-1] < CERTAIN


@given(NOTES)
def test_it_is_a_probability_whatever_happens(notes):
    confidence = taught(notes)
    assert all(0 < confidence.at(length) <= CERTAIN for length in range(1, 50))


def test_evidence_overrules_the_guess_for_matches_of_that_length_only():
    missing, before = taught([(2, False)] * 200), Confidence()
    assert missing.at(2) < missing.at(3) < 0.35  # 2 and 3 are one kind; their guesses differ
    assert [missing.at(n) for n in (1, 4, 24)] == [before.at(n) for n in (1, 4, 24)]
    assert taught([(2, True)] * 200).at(2) > 0.85


def test_one_bad_day_fades():
    confidence = taught([(5, False)] * 300 + [(5, True)] * 300)
    assert confidence.at(5) > 0.9


@given(NOTES, st.integers(1, 30), st.integers(0, 30), st.floats(0.01, 0.9))
def test_reach_is_the_longest_draft_that_is_likely_enough(notes, length, most, least):
    confidence = taught(notes)
    reach, sure = confidence.reach(length, most, least), 1.0
    for depth in range(reach):
        sure *= confidence.at(length + depth)
    assert sure >= least
    assert reach == most or sure * confidence.at(length + reach) < least
    assert confidence.reach(length, most, 0.0) == most


def test_a_short_match_reaches_less_far_than_a_long_one():
    confidence = Confidence()
    reached = [confidence.reach(length, 100, 0.15) for length in (1, 2, 4)]
    assert reached == [8, 14, 25]


def test_what_comes_after_a_miss_counts_for_nothing():
    confidence, wanted = Confidence(), Confidence()
    confidence.learn(3, [1, 2, 3, 4], [1, 9, 3, 4])
    wanted.learn(3, [1], [1])
    wanted.learn(4, [2], [9])
    assert [confidence.at(n) for n in range(1, 25)] == [wanted.at(n) for n in range(1, 25)]


def test_only_what_was_said_is_judged():
    confidence = Confidence()
    confidence.learn(1, [1, 2, 3], [])
    confidence.learn(1, [], [1, 2])
    assert confidence.at(1) == Confidence().at(1)
