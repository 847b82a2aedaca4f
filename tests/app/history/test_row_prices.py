"""Prices of passes, kept from one load to the next."""

import pytest

from app.history import measurements
from engine.request import Calibration

PRICES = Calibration(((1, 0.01), (4, 0.02), (16, 0.05)), 1e-6, 2e-7, 8, 1e-4, whole=False)


def test_what_was_kept_is_found_by_its_key_alone(history):
    history.calibrations.put("one", Calibration((), 0.0, 0.0, 1))
    history.calibrations.put("one", PRICES)
    assert history.calibrations.of("one") == PRICES
    assert history.calibrations.of("other") is None


def test_old_prices_are_measured_again(history, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measurements, "utc_now", lambda: "2020-01-01T00:00:00+00:00")
    history.calibrations.put("one", PRICES)
    assert history.calibrations.of("one") is None


def test_forgetting_all_figures_takes_them_along(history):
    history.calibrations.put("one", PRICES)
    history.measurements.forget("a model")
    assert history.calibrations.of("one") == PRICES
    history.measurements.forget()
    assert history.calibrations.of("one") is None
