"""The command ``doctor``: what it prints, and a remedy for everything that is missing."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from app.commands import doctor as command
from app.commands.doctor import DoctorOptions, lines, run
from app.commands.main import parse
from app.settings import Settings
from app.setup.checks import Finding, Software, findings
from engine.errors import ModelUnusable
from engine.hardware.profile import GIB, Gpu, HardwareProfile, Ram, Rates
from engine.models.gguf.file_types import RowTable

WHOLE = Software(compiler=True, llama_cpp=True, torch_cuda=True, torch="2.13")
GPU = Gpu("NVIDIA H100", 70 * GIB, 80 * GIB, 2.5e12, 6e14, 5e10)
MACHINE = HardwareProfile("A processor", 4, ("avx2",), Ram(16 * GIB, 12 * GIB), disk_free=100 * GIB)
TABLE = RowTable({"q4_k_m": (0.010, 0.015, 0.025), "q4_0": (0.005, 0.009, 0.010)})
POOR = HardwareProfile("p", 1, (), Ram(GIB, GIB, "a group"), (GPU,), disk_free=0)


def found_in(profile: HardwareProfile, software: Software) -> list[Finding]:
    return list(findings(profile, software))


@pytest.fixture
def asked(tmp_path: Path) -> Settings:
    settings = Settings(home=tmp_path)
    settings.models_folder.mkdir()
    return settings


def test_a_whole_machine_lacks_nothing():
    assert found_in(MACHINE, WHOLE) == []
    assert found_in(MACHINE, replace(WHOLE, torch_cuda=False)) == [], "there is no GPU"
    assert "Nothing is missing." in list(lines(MACHINE, ()))


@pytest.mark.parametrize(
    ("profile", "software", "what", "remedy"),
    [
        (replace(MACHINE, ram=Ram(16 * GIB, GIB)), WHOLE, "1.00 GiB of memory", "close programs"),
        (replace(MACHINE, disk_free=GIB), WHOLE, "1.00 GiB are free where", "SLIPSTREAM_HOME"),
        (replace(MACHINE, instructions=("fma",)), WHOLE, "neither AVX2 nor NEON", "slower"),
        (
            replace(MACHINE, gpus=(GPU,)),
            replace(WHOLE, torch_cuda=False, torch="2.13+cpu"),
            "torch 2.13+cpu does not use the NVIDIA H100",
            "whl/cu",
        ),
        (MACHINE, replace(WHOLE, llama_cpp=False), "GGUF files cannot", "-m pip"),
        (
            MACHINE,
            replace(WHOLE, llama_cpp=False, compiler=False),
            "GGUF files cannot",
            "a C++ compiler first",
        ),
        (
            MACHINE,
            replace(WHOLE, amx_left_out_by="GCC 12.2"),
            "compiled by GCC 12.2, which leaves the set-up of AMX out",
            "--force-reinstall --no-deps llama-cpp-python",
        ),
        (
            MACHINE,
            replace(WHOLE, unchanged=True),
            "4-bit GGUF files takes up to a third longer",
            "llama_cpp.cmake",
        ),
        (
            MACHINE,
            replace(WHOLE, unchanged=True, amx_left_out_by="GCC 12.2"),
            "compiled by GCC 12.2",
            "llama_cpp.cmake",
        ),
        (
            MACHINE,
            replace(WHOLE, huge_pages=False),
            "huge pages are switched off",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    ],
)
def test_one_thing_that_is_missing_is_one_finding(profile, software, what, remedy):
    (found,) = found_in(profile, software)
    assert what in found.what
    assert remedy in found.remedy
    assert found.needed == ("of memory" in what)


def test_everything_missing_is_listed_and_the_needed_is_marked():
    found = found_in(POOR, Software(False, False, False, "2.13+cpu"))
    assert [one.needed for one in found] == [True, False, False, False, False]
    text = "\n".join(lines(POOR, tuple(found)))
    assert text.count("needed: ") == 1
    assert text.count("could be better: ") == 4
    for one in found:
        assert one.what in text
        assert one.remedy in text


def test_rates_are_shown_or_not_measured():
    text = "\n".join(lines(MACHINE, ()))
    assert text.count("not measured") == 4
    assert "GGUF types   not measured; slipstream doctor --types does it in a minute" in text
    assert "none of NVIDIA that can be used" in text
    rates = Rates(memory=2.34e10, matrix=5e11, disk=3.2e9)
    text = "\n".join(lines(replace(MACHINE, rates=rates, gpus=(GPU,)), (), TABLE))
    for part in ("21.8 GiB/s", "500.0 GFLOP/s", "3.0 GiB/s", "70.00 GiB of 80.00 GiB", "2.3 TiB/s"):
        assert part in text
    assert "not measured" not in text


def test_types_are_listed_from_the_fastest_on_with_their_share_of_the_usual_ones_time():
    text = "\n".join(lines(MACHINE, (), TABLE))
    assert "ms of passes of 1, 4, 16 rows of a small model, and in Q4_K_M's time" in text
    fast, usual = (text.index(f"  {kind} ") for kind in ("Q4_0", "Q4_K_M"))
    assert fast < usual
    assert text[fast:usual].split() == ["Q4_0", "5.0", "9.0", "10.0", "0.50", "0.60", "0.40"]


def test_the_command_describes_this_machine(asked, capsys):
    options = parse(["doctor", "--json"], asked).options
    assert isinstance(options, DoctorOptions)
    status = run(options)
    content = json.loads(capsys.readouterr().out)
    assert content["profile"]["ram"]["total"] > 0
    assert content["profile"]["rates"]["memory"] > 0
    assert content["types"] is None, "a minute's work is done only when it is asked for"
    assert status == int(any(one["needed"] for one in content["missing"]))
    run(replace(options, json=False))  # rates are remembered by now
    text = capsys.readouterr().out
    assert f"reads {content['profile']['rates']['memory'] / 2**30:.1f} GiB/s" in text
    assert content["profile"]["processor"] in text


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk takes root")
def test_a_full_disk_is_a_finding_and_no_failure(tmp_path, capsys):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False)
    if mounted.returncode:
        pytest.skip("no right to mount here")
    try:
        settings = Settings(home=disk)
        settings.models_folder.mkdir()
        with pytest.raises(OSError, match="No space left"):
            (disk / "filling").write_bytes(b"x" * 2**20)
        run(DoctorOptions(settings))
        text = capsys.readouterr().out
        assert "disk         0.0 MiB free" in text
        assert "could be better: 0.0 MiB are free where" in text
        with pytest.raises(ModelUnusable, match="0.0 MiB are free in the disk of"):
            run(DoctorOptions(settings, types=True))
        assert not (disk / "hardware.json").exists()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_what_is_needed_and_missing_shows_in_the_exit_status(asked, monkeypatch, capsys):
    monkeypatch.setattr(command, "measured_profile", lambda *_, **__: POOR)
    assert run(DoctorOptions(asked)) == 1
    assert "close programs or raise the limit" in capsys.readouterr().out
