"""The command ``plan`` and what its table promises; the command ``doctor`` and its remedies."""

import json
from pathlib import Path

import pytest

from app.arguments import parse
from app.doctor import Software, findings
from app.hardware_options import PlanOptions
from app.placement import place
from app.plan_report import report, table
from app.settings import Settings
from engine.hardware.profile import GIB, Gpu, HardwareProfile, Ram
from engine.request import ModelSpec

ROOT = Path(__file__).resolve().parents[2]
WHOLE = Software(compiler=True, llama_cpp=True, torch_cuda=True, torch="2.13")
MACHINE = HardwareProfile("p", 4, ("avx2",), Ram(16 * GIB, 12 * GIB), disk_free=100 * GIB)


def options(tmp_path: Path, *arguments: str) -> PlanOptions:
    found = parse(["plan", *arguments], Settings(home=tmp_path))
    assert isinstance(found, PlanOptions)
    return found


def test_the_linked_table_is_what_the_command_prints() -> None:
    assert (ROOT / ".github/plans.md").read_text() == "".join(f"{line}\n" for line in table())


def test_a_machine_that_one_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--model", "llama-3.1-8b", "--gpu", "8GiB", "--ram", "16GiB")
    assert report(options(tmp_path, *asked, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["drafter"], found["device"]) == (True, "specexec", "cuda")
    assert report(options(tmp_path, "--model", "llama-3.3-70b-q4", "--ram", "16GiB")) == 1
    assert "41.0" in capsys.readouterr().out


def test_the_bundled_model_needs_no_plan(tmp_path: Path) -> None:
    spec = ModelSpec("pocket", str(ROOT / "engine/bundled/pocket"))
    placed = place(Settings(home=tmp_path), spec)
    assert (placed.spec, placed.plan) == (spec, None)
    assert not list(tmp_path.iterdir())


def test_every_lack_has_a_remedy_and_a_whole_machine_has_none() -> None:
    assert not list(findings(MACHINE, WHOLE))
    poor = HardwareProfile("p", 1, (), Ram(GIB, GIB), (Gpu("G", GIB, GIB),), disk_free=0)
    found = list(findings(poor, Software(False, False, False, "2.13+cpu")))
    assert [finding.needed for finding in found] == [True, False, False, False, False]
    assert all(finding.remedy for finding in found)
