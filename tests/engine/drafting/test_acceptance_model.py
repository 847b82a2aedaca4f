"""Odds: averages of measured chances, by rank and by what the draft said."""

import pytest

from engine.drafting.acceptance_model import RANKS, AcceptanceModel, Hint


def test_a_guess_rises_with_the_drafts_own_probability():
    odds = AcceptanceModel()
    for rank in range(RANKS + 1):
        after = [odds.after(rank, p) for p in (0.01, 0.1, 0.4, 0.7, 0.99)]
        assert after == sorted(after)
        assert 0 < after[0] < after[-1] < 1


def test_what_was_measured_takes_the_place_of_the_guess():
    odds = AcceptanceModel()
    for _ in range(400):
        odds.learn([Hint(0.6, 0.6), Hint(0.9, 0.03)], [0.8, 0.1, 0.0], [1.0, 0.5, 0.4])
    assert odds.before(0, 0.6) == pytest.approx(0.8, abs=0.01)
    assert odds.after(0, 0.6) == pytest.approx(1 - 0.5, abs=0.01)
    assert odds.before(1, 0.9) == pytest.approx(0.1 / 0.5, abs=0.02)
    assert odds.after(1, 0.03) == pytest.approx(1 - 0.4 / 0.5, abs=0.02)


def test_other_ranks_and_other_probabilities_are_not_touched():
    odds, fresh = AcceptanceModel(), AcceptanceModel()
    odds.learn([Hint(0.6, 0.6)], [1.0, 0.0], [1.0, 0.0])
    assert odds.after(0, 0.4) == fresh.after(0, 0.4)
    assert odds.after(1, 0.6) == fresh.after(1, 0.6)


def test_what_is_hardly_ever_judged_or_not_known_teaches_nothing():
    odds, fresh = AcceptanceModel(), AcceptanceModel()
    odds.learn([Hint(0.6, 0.6)], [0.0], [1e-6, 0.0])
    odds.learn([Hint(0.6, 0.6)], [float("nan")], [float("nan"), float("nan")])
    assert odds == fresh


def test_newer_evidence_weighs_more():
    odds = AcceptanceModel()
    for share in (0.0, 1.0):
        for _ in range(1000):
            odds.learn([Hint(0.6, 0.6)], [share, 0.0], [1.0, 1 - share])
    assert odds.after(0, 0.6) > 0.9
