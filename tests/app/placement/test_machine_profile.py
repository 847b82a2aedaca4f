"""Rates of this machine: measured once, remembered, and never believed of another machine."""

import json
from pathlib import Path

import pytest

from app.placement.machine_profile import known_profile, measured_profile
from app.settings import Settings
from app.setup import machine_view as machine
from app.setup.checks import findings, software
from engine.hardware.profile import HardwareProfile, Rates


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, HardwareProfile]:
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    settings.models_folder.mkdir()
    return settings, measured_profile(settings)


def copied(measured: tuple[Settings, HardwareProfile], home: Path) -> tuple[Settings, Path]:
    """A home with what was remembered, to spoil."""
    settings = Settings(home=home)
    settings.models_folder.mkdir()
    file = home / "hardware.json"
    file.write_text((measured[0].home / "hardware.json").read_text())
    return settings, file


def test_a_machine_that_was_never_measured_has_no_rates(tmp_path: Path) -> None:
    found = known_profile(Settings(home=tmp_path))
    assert found.rates == Rates()
    assert found.ram.total > 0
    assert not list(tmp_path.iterdir())


def test_what_was_measured_is_remembered(measured: tuple[Settings, HardwareProfile]) -> None:
    settings, first = measured
    # measured anew, no two rates are the same to the last bit
    assert measured_profile(settings).rates == first.rates == known_profile(settings).rates
    assert None not in (first.rates.memory, first.rates.matrix, first.rates.disk)
    assert not list(settings.models_folder.iterdir())


def test_another_machines_rates_are_not_believed(
    measured: tuple[Settings, HardwareProfile], tmp_path: Path
) -> None:
    settings, file = copied(measured, tmp_path)
    assert known_profile(settings).rates == measured[1].rates
    content = json.loads(file.read_text())
    for part in ("cores", "bytes", "no GPU"):
        changed = {**content, "machine": content["machine"].replace(part, f"other {part}")}
        if changed != content:  # a machine with a GPU does not say that it has none
            file.write_text(json.dumps(changed))
            assert known_profile(settings).rates == Rates()


@pytest.mark.parametrize("spoilt", ["", "{", "[]", '{"machine": 1}', '{"rates": {}}', "\udcff"])
def test_a_damaged_file_is_as_if_there_were_none(
    measured: tuple[Settings, HardwareProfile], tmp_path: Path, spoilt: str
) -> None:
    settings, file = copied(measured, tmp_path)
    file.write_bytes(spoilt.encode("utf-8", "surrogateescape"))
    assert known_profile(settings).rates == Rates()


def test_a_rate_that_cannot_be_is_not_believed(
    measured: tuple[Settings, HardwareProfile], tmp_path: Path
) -> None:
    settings, file = copied(measured, tmp_path)
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "rates": {**content["rates"], "memory": -1}}))
    assert known_profile(settings).rates == Rates()


def test_a_screen_sees_what_is_remembered_and_what_is_missing(
    measured: tuple[Settings, HardwareProfile],
) -> None:
    seen = machine.look(measured[0])
    assert seen.profile.rates == measured[1].rates
    assert seen.missing == tuple(findings(seen.profile, software()))
