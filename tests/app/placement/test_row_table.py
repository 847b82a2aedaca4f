"""The row table of a machine: measured once, remembered, and not used for another machine."""

from pathlib import Path

import pytest

from app.placement import row_table
from app.placement.row_table import known_table, measured_table
from app.settings import Settings, prepare_home
from engine.errors import ModelUnusable
from engine.hardware.profile import Ram
from tests.app.row_tables import remember

pytest.importorskip("llama_cpp.llama_cpp")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path)
    prepare_home(made)
    return made


def test_a_machine_that_was_never_measured_has_no_table(settings):
    assert known_table(settings) is None


def test_what_is_remembered_is_not_measured_again(settings):
    remember(settings)
    found = measured_table(settings, pytest.fail)
    assert found == known_table(settings)
    assert found.seconds["q4_0"] == (0.005, 0.01, 0.02)


def test_a_table_of_other_settings_or_another_machine_is_not_believed(settings):
    remember(settings)
    assert known_table(Settings(home=settings.home, exact=True)) is None
    remember(settings, machine="another one")
    assert known_table(settings) is None


@pytest.mark.parametrize(
    "seconds",
    [{}, None, [], {"q4_0": 1}, {"q4_0": [1, 2]}, {"q4_0": [1, 2, -3]}, {"q4_0": ["x", 1, 1]}],
)
def test_a_damaged_file_is_as_if_there_were_none(settings, seconds):
    remember(settings, seconds=seconds)
    assert known_table(settings) is None


def test_too_little_memory_is_said_with_both_numbers(settings, monkeypatch):
    monkeypatch.setattr(row_table, "ram", lambda: Ram(1 << 31, 1 << 30))
    with pytest.raises(ModelUnusable, match=r"takes 3.00 GiB .* 1.00 GiB are free in memory"):
        measured_table(settings, pytest.fail)


@pytest.mark.slow
def test_a_real_measurement_is_kept_and_leaves_nothing_else(settings):
    said: list[str] = []
    table = measured_table(settings, said.append)
    assert known_table(settings) == table
    assert len(said) > len(table.seconds)
    assert not list(settings.home.glob(".types-*"))
