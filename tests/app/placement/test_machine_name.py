"""The name of a machine: steady, short, and different where speed would be."""

from pathlib import Path

import pytest

from app.placement.machine_name import machine_name

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
    ("text", "expected"),
    [
        (INTEL, "Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz, 2 cores, cpu, float32"),
        (MIPS, "MIPS 74Kc, 2 cores, cpu, float32"),
        (ARM, "aarch64, 2 cores, cpu, float32"),
        ("", "aarch64, 2 cores, cpu, float32"),
    ],
)
def test_says_processor_cores_device_and_format(text, expected, tmp_path, monkeypatch):
    assert name_with(text, tmp_path, {0, 1}, monkeypatch) == expected


def test_cores_that_are_not_allowed_do_not_count(tmp_path, monkeypatch):
    assert ", 1 core, " in name_with(INTEL, tmp_path, {3}, monkeypatch)


def test_without_the_file_the_standard_library_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.processor", lambda: "Some64 Family 6")
    found = machine_name("cuda", "bfloat16", tmp_path / "not there")
    assert found.startswith("Some64 Family 6, ")
    assert found.endswith(", cuda, bfloat16")


def test_this_machine_has_a_steady_name():
    assert machine_name("cpu", "float32") == machine_name("cpu", "float32")
    assert machine_name("cpu", "float32") != machine_name("cpu", "bfloat16")
