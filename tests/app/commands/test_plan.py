"""The command ``plan``: what its table promises, what it says of a machine, what it refuses."""

import json
import sys
from pathlib import Path

import pytest

from app.commands.main import main, parse
from app.commands.plan import PlanOptions, run
from app.placement.machine import known_profile
from app.placement.plans import place
from app.settings import Settings
from engine.hardware.plan import Plan
from engine.hardware.planner import plan
from engine.hardware.profile import GIB, imagined
from engine.hardware.published import MACHINES, MODELS, candidates
from engine.hardware.reasons import gib
from engine.request import ModelSpec

ROOT = Path(__file__).resolve().parents[3]


def options(tmp_path: Path, *arguments: str) -> PlanOptions:
    found = parse(["plan", *arguments], Settings(home=tmp_path)).options
    assert isinstance(found, PlanOptions)
    return found


def test_a_machine_that_one_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--model", "llama-3.1-8b", "--gpu", "8GiB", "--ram", "16GiB")
    assert run(options(tmp_path, *asked, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["drafter"], found["device"]) == (True, "specexec", "cuda")
    assert run(options(tmp_path, "--model", "llama-3.3-70b-q4", "--ram", "16GiB")) == 1
    assert "needs 40.99 GiB in RAM" in capsys.readouterr().out


def test_the_table_has_a_section_for_every_published_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(options(tmp_path, "--table")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[3:] for line in lines if line.startswith("## ")] == list(MODELS)
    assert sum(line.startswith("| ") for line in lines) == len(MODELS) * (len(MACHINES) + 2)


def test_a_model_of_the_catalogue_is_planned_before_it_is_downloaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's own command said that the model is not on this machine."""
    asked = ("--model", "qwen3-0.6b", "--gpu", "8GiB", "--ram", "16GiB")
    assert run(options(tmp_path, *asked, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["device"]) == ("qwen3-0.6b", "cuda")
    assert run(options(tmp_path, "--model", "qwen3-8b", "--ram", "4GiB")) == 1
    assert "qwen3-8b needs" in capsys.readouterr().out


def test_the_bundled_model_needs_no_plan(tmp_path: Path) -> None:
    spec = ModelSpec("pocket", str(ROOT / "engine/bundled/pocket"))
    placed = place(Settings(home=tmp_path), spec)
    assert (placed.spec, placed.plan) == (spec, None)
    assert not list(tmp_path.iterdir())


def test_a_plan_tells_every_choice_and_every_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--model", "llama-3.1-8b", "--gpu", "8GiB", "--ram", "16GiB")
    assert run(options(tmp_path, *asked)) == 0
    text = capsys.readouterr().out
    found = plan(imagined(8 * GIB, 16 * GIB), candidates("llama-3.1-8b"))
    assert isinstance(found, Plan)
    assert text.startswith(f"llama-3.1-8b: {found.stage}\n")
    for reason in found.why:
        assert reason.sentence in text
    for need in found.needs:
        assert f"{gib(need.bytes)}  {need.what}" in text


def test_wishes_reach_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "llama-3.2-3b", "--ram", "64GiB", "--no-draft", "--json")
    assert run(options(tmp_path, *asked, "--context", "1000", "--dtype", "bfloat16")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["context"], found["dtype"], found["draft_model"]) == (1000, "bfloat16", None)
    assert found["device"] == "cpu"


def test_this_machine_is_planned_for_where_no_memory_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(options(tmp_path, "--model", "pocket", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    here = known_profile(Settings(home=tmp_path))
    (room,) = (free for tier, free in found["room"] if tier == "ram")
    assert room <= here.ram.total
    assert set(found["placement"]) <= {"ram", "device"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpu", "8GiB"), "needs --ram"),
        (("--gpu", "eight", "--ram", "16GiB"), "'eight' is not an amount of memory"),
        (("--ram", "16GiB", "--context", "0"), "'0' is not a whole number from 1"),
        (("--ram", "16GiB", "--model", "nobody"), "nobody"),
        (("--ram", "64GiB", "--model", "llama-3.1-8b-q4", "--dtype", "float32"), "cannot run as"),
    ],
)
def test_a_wrong_question_ends_with_2_and_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(["plan", *arguments], serve=lambda _: 0))
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "Traceback" not in err
