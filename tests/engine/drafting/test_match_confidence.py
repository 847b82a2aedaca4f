"""Confidence in matches: the guess, what measurements make of it, and how far a draft reaches."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.match_confidence import MatchConfidence, MatchConfidences
from engine.drafting.tuning import TUNING
from engine.request import Prior

LONGEST, CERTAIN = TUNING.longest_match, TUNING.max_confidence
KINDS = LONGEST.bit_length() + 1
NOTES = st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60)


def taught(notes):
    confidence = MatchConfidence()
    for length, hit in notes:
        confidence.learn(length, [7], [7 if hit else 8])
    return confidence


def test_before_anything_is_known_longer_matches_are_surer():
    known = [MatchConfidence().at(length) for length in range(1, LONGEST + 1)]
    assert known == sorted(known)
    assert known[0] == pytest.approx(0.6)
    assert MatchConfidence().at(1000) == known[-1] < CERTAIN


@given(NOTES)
def test_it_is_a_probability_whatever_happens(notes):
    confidence = taught(notes)
    assert all(0 < confidence.at(length) <= CERTAIN for length in range(1, 50))


def test_evidence_overrules_the_guess_for_matches_of_that_length_only():
    missing, before = taught([(2, False)] * 200), MatchConfidence()
    assert missing.at(2) < missing.at(3) < 0.35  # 2 and 3 are one kind; their guesses differ
    assert [missing.at(n) for n in (1, 4, 24)] == [before.at(n) for n in (1, 4, 24)]
    assert taught([(2, True)] * 200).at(2) > 0.85


def test_old_evidence_fades():
    confidence = taught([(5, False)] * 300 + [(5, True)] * 300)
    assert confidence.at(5) > 0.9


@given(NOTES, st.integers(1, 30), st.integers(0, 30))
def test_a_copy_survives_as_the_match_that_grows_with_it_says(notes, length, most):
    confidence = taught(notes)
    sure, expected = 1.0, []
    for depth in range(most):
        sure *= confidence.at(length + depth)
        expected.append(sure)
    assert confidence.survival(length, most) == expected
    assert all(later < sooner for sooner, later in pairwise(expected))


def test_a_request_starts_from_what_is_usual_and_soon_goes_its_own_way():
    session = taught([(4, True)] * 200)
    copying, inventing = MatchConfidence(session), MatchConfidence(session)
    assert copying.at(4) == inventing.at(4) == session.at(4) > 0.97
    for _ in range(4):
        inventing.learn(4, [1], [2])
    assert inventing.at(4) < 0.55
    assert copying.at(4) > 0.97  # requests of the same time do not see each other's luck at once
    assert 0.9 < session.at(4) < 0.97
    assert MatchConfidence(session).at(4) == session.at(4)


def test_what_comes_after_a_miss_counts_for_nothing():
    confidence, wanted = MatchConfidence(), MatchConfidence()
    confidence.learn(3, [1, 2, 3, 4], [1, 9, 3, 4])
    wanted.learn(3, [1], [1])
    wanted.learn(4, [2], [9])
    assert [confidence.at(n) for n in range(1, 25)] == [wanted.at(n) for n in range(1, 25)]


def test_only_what_was_said_is_judged():
    confidence = MatchConfidence()
    confidence.learn(1, [1, 2, 3], [])
    confidence.learn(1, [], [1, 2])
    assert confidence.at(1) == MatchConfidence().at(1)


def test_a_new_session_starts_from_what_the_last_one_measured():
    shares, events = taught([(2, False)] * 20 + [(5, True)] * 30).shares()
    assert sum(shares) == pytest.approx(1)
    again = MatchConfidence()
    again.remember(Prior("lookup", shares=shares, share_weight=events))
    fresh = MatchConfidence()
    assert again.at(2) < 0.5 * fresh.at(2)
    assert again.at(5) > fresh.at(5)
    assert again.at(1) == fresh.at(1)


def test_what_earlier_sessions_measured_does_not_overrule_this_one():
    confidence = taught([(2, False)] * 3)
    before = [confidence.at(length) for length in range(1, LONGEST + 1)]
    confidence.remember(
        Prior("lookup", shares=(1 / KINDS,) * KINDS + (0.0,) * KINDS, share_weight=50)
    )
    assert [confidence.at(length) for length in range(1, LONGEST + 1)] == before


@pytest.mark.parametrize("shares", [(), (0.5, 0.5), (0.1,) * (2 * KINDS + 1)])
def test_a_record_of_another_form_says_nothing(shares):
    confidence, fresh = MatchConfidence(), MatchConfidence()
    confidence.remember(Prior("lookup", shares=shares, share_weight=50.0))
    assert confidence.at(3) == fresh.at(3)


def test_kinds_of_tasks_are_separate_and_a_new_one_starts_from_all():
    kinds, fresh = MatchConfidences(), MatchConfidence()
    edit = kinds.start("edit", None)
    for _ in range(20):
        edit.learn(1, [7], [7])
    chat = kinds.start("chat", None)
    assert chat.at(1) > fresh.at(1)  # what is known of all
    for _ in range(20):
        chat.learn(1, [7], [8])
    assert kinds.start("edit", None).at(1) > 0.85
    assert kinds.start("chat", None).at(1) < 0.3
    between = kinds.start("maths", None).at(1)
    assert 0.3 < between < 0.7
    assert kinds.start("maths", None).at(8) == fresh.at(8)  # nothing said anything of those


def test_earlier_sessions_speak_of_their_own_kind_of_task():
    kinds = MatchConfidences()
    shares, events = taught([(2, False)] * 20).shares()
    prior = Prior("lookup", shares=shares, share_weight=events)
    assert kinds.start("chat", prior).at(2) < 0.3
    assert kinds.start("edit", None).at(2) == MatchConfidence().at(2)


def test_before_anything_was_evaluated_there_is_nothing_to_keep():
    assert MatchConfidence().shares() == ((), 0.0)
