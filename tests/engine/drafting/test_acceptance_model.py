"""The acceptance model: averages of measured chances, by rank and by the draft's probability."""

import pytest

from engine.drafting.acceptance_model import AcceptanceModel, Hint

PROBABILITIES = (0.01, 0.1, 0.4, 0.7, 0.99)


def estimates(model):
    return [
        (model.before(rank, p), model.after(rank, p)) for rank in range(4) for p in PROBABILITIES
    ]


def test_a_guess_rises_with_the_drafts_own_probability():
    model = AcceptanceModel()
    for rank in range(4):
        after = [model.after(rank, p) for p in PROBABILITIES]
        assert after == sorted(after)
        assert 0 < after[0] < after[-1] < 1


def test_what_was_measured_takes_the_place_of_the_guess():
    model = AcceptanceModel()
    for _ in range(400):
        model.learn([Hint(0.6, 0.6), Hint(0.9, 0.03)], [0.8, 0.1, 0.0], [1.0, 0.5, 0.4])
    assert model.before(0, 0.6) == pytest.approx(0.8, abs=0.01)
    assert model.after(0, 0.6) == pytest.approx(1 - 0.5, abs=0.01)
    assert model.before(1, 0.9) == pytest.approx(0.1 / 0.5, abs=0.02)
    assert model.after(1, 0.03) == pytest.approx(1 - 0.4 / 0.5, abs=0.02)


def test_other_ranks_and_other_probabilities_are_not_touched():
    model, fresh = AcceptanceModel(), AcceptanceModel()
    model.learn([Hint(0.6, 0.6)], [1.0, 0.0], [1.0, 0.0])
    assert model.after(0, 0.4) == fresh.after(0, 0.4)
    assert model.after(1, 0.6) == fresh.after(1, 0.6)


def test_what_is_hardly_ever_judged_or_not_known_teaches_nothing():
    model, fresh = AcceptanceModel(), AcceptanceModel()
    model.learn([Hint(0.6, 0.6)], [0.0], [1e-6, 0.0])
    model.learn([Hint(0.6, 0.6)], [float("nan")], [float("nan"), float("nan")])
    assert estimates(model) == estimates(fresh)


def test_newer_evidence_weighs_more():
    model = AcceptanceModel()
    for share in (0.0, 1.0):
        for _ in range(1000):
            model.learn([Hint(0.6, 0.6)], [share, 0.0], [1.0, 1 - share])
    assert model.after(0, 0.6) > 0.9
