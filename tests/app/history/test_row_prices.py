"""Prices of passes, kept from one load to the next."""

import pytest

from app.history import measurements
from engine.request import RowPrices

PRICES = RowPrices(((1, 0.01), (4, 0.02), (16, 0.05)), 1e-6)


def test_what_was_kept_is_found_by_its_key_alone(history):
    history.row_prices.put("one", RowPrices((), 0.0))
    history.row_prices.put("one", PRICES)
    assert history.row_prices.of("one") == PRICES
    assert history.row_prices.of("other") is None


def test_old_prices_are_measured_again(history, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measurements, "utc_now", lambda: "2020-01-01T00:00:00+00:00")
    history.row_prices.put("one", PRICES)
    assert history.row_prices.of("one") is None


def test_forgetting_all_figures_takes_them_along(history):
    history.row_prices.put("one", PRICES)
    history.measurements.forget("a model")
    assert history.row_prices.of("one") == PRICES
    history.measurements.forget()
    assert history.row_prices.of("one") is None
