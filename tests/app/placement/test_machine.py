"""The name of this machine, and its rates: measured once, remembered, not used for another one."""

import json
from pathlib import Path

import pytest

from app.placement.machine import known_profile, machine_name, measured_profile
from app.settings import Settings
from app.setup import checks as machine
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


def test_a_machine_that_was_never_measured_has_no_rates(tmp_path):
    found = known_profile(Settings(home=tmp_path))
    assert found.rates == Rates()
    assert found.ram.total > 0
    assert not list(tmp_path.iterdir())


def test_what_was_measured_is_remembered(measured):
    settings, first = measured
    # measured anew, no two rates are the same to the last bit
    assert measured_profile(settings).rates == first.rates == known_profile(settings).rates
    assert None not in (first.rates.memory, first.rates.matrix, first.rates.disk)
    assert not list(settings.models_folder.iterdir())


def test_rates_of_another_machine_or_below_zero_are_not_believed(measured, tmp_path):
    settings, file = copied(measured, tmp_path)
    assert known_profile(settings).rates == measured[1].rates
    content = json.loads(file.read_text())
    for part in ("cores", "bytes", "no GPU"):
        changed = {**content, "machine": content["machine"].replace(part, f"other {part}")}
        if changed != content:  # a machine with a GPU does not say that it has none
            file.write_text(json.dumps(changed))
            assert known_profile(settings).rates == Rates()
    file.write_text(json.dumps({**content, "rates": {**content["rates"], "memory": -1}}))
    assert known_profile(settings).rates == Rates(), "a rate cannot be negative"


@pytest.mark.parametrize("spoilt", ["", "{", "[]", '{"machine": 1}', '{"rates": {}}', "\udcff"])
def test_a_damaged_file_is_as_if_there_were_none(measured, tmp_path, spoilt):
    settings, file = copied(measured, tmp_path)
    file.write_bytes(spoilt.encode("utf-8", "surrogateescape"))
    assert known_profile(settings).rates == Rates()


def test_a_screen_sees_what_is_remembered_and_what_is_missing(measured):
    seen = machine.look(measured[0])
    assert seen.profile.rates == measured[1].rates
    assert seen.missing == tuple(findings(seen.profile, software()))


INTEL = (
    "processor\t: 0\nmodel name\t: Intel(R) Core(TM)   i5-8250U CPU @ 1.60GHz\ncpu MHz\t: 800.0\n"
)
MIPS = "system type\t: somewhere\ncpu model\t\t: MIPS 74Kc\n"
ARM = "processor\t: 0\nBogoMIPS\t: 38.40\nCPU part\t: 0xd0b\n"


def name_with(text: str, folder: Path, cores: set[int], monkeypatch: pytest.MonkeyPatch) -> str:
    file = folder / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: cores, raising=False)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    return machine_name("cpu", "float32", file)


@pytest.mark.parametrize(
    ("text", "allowed", "expected"),
    [
        (INTEL, {0, 1}, "Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz, 2 cores, cpu, float32"),
        (INTEL, {3}, "Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz, 1 core, cpu, float32"),
        (MIPS, {0, 1}, "MIPS 74Kc, 2 cores, cpu, float32"),
        (ARM, {0, 1}, "aarch64, 2 cores, cpu, float32"),
        ("", {0, 1}, "aarch64, 2 cores, cpu, float32"),
    ],
)
def test_says_processor_cores_that_are_allowed_device_and_format(
    text, allowed, expected, tmp_path, monkeypatch
):
    assert name_with(text, tmp_path, allowed, monkeypatch) == expected


def test_without_the_file_the_standard_library_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.processor", lambda: "Some64 Family 6")
    found = machine_name("cuda", "bfloat16", tmp_path / "not there")
    assert found.startswith("Some64 Family 6, ")
    assert found.endswith(", cuda, bfloat16")
