"""The command ``plan``: what its table promises, what it says of a machine, what it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.commands.arguments import memory
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


@pytest.fixture
def planned(slipstream):
    """Runs ``plan`` with these options; returns the exit code and the output."""
    return lambda *arguments: slipstream("plan", *arguments)[:2]


@pytest.fixture
def found(planned):
    """The plan that ``plan --json`` finds."""

    def run(*arguments: str) -> dict[str, Any]:
        code, out = planned(*arguments, "--json")
        assert code == 0
        return json.loads(out)

    return run


LLAMA_8B = ("--model", "llama-3.1-8b", "--gpu", "8GiB", "--ram", "16GiB")


def test_a_machine_that_one_does_not_have(found, planned):
    plan = found(*LLAMA_8B)
    assert (plan["runs"], plan["drafter"], plan["device"]) == (True, "specexec", "cuda")
    code, out = planned("--model", "llama-3.3-70b-q4", "--ram", "16GiB")
    assert code == 1
    assert re.search(r"needs 40\.\d\d GiB in RAM", out)


def test_the_table_has_a_section_for_every_published_model(planned):
    code, out = planned("--table")
    lines = out.splitlines()
    assert code == 0
    assert [line[3:] for line in lines if line.startswith("## ")] == list(MODELS)
    assert sum(line.startswith("| ") for line in lines) == len(MODELS) * (len(MACHINES) + 2)


def test_a_model_of_the_catalogue_is_planned_before_it_is_downloaded(found, planned):
    """The README's own command said that the model is not on this machine."""
    plan = found("--model", "qwen3-0.6b", "--gpu", "8GiB", "--ram", "16GiB")
    assert (plan["model"], plan["device"]) == ("qwen3-0.6b", "cuda")
    code, out = planned("--model", "qwen3-8b", "--ram", "4GiB")
    assert code == 1
    assert "qwen3-8b needs" in out


@pytest.mark.parametrize("gpu", ["8GiB", "24GiB", None])
def test_a_plan_for_a_machine_names_the_model_to_get_for_it(found, planned, gpu):
    machine = ("--ram", "32GiB", *(("--gpu", gpu) if gpu else ()))
    best = found("--model", "qwen3-0.6b", *machine)["best"]
    shown = planned("--model", "qwen3-0.6b", *machine)[1]
    assert f"slipstream models pull {best}. " in shown
    plan = found("--model", best, *machine)
    assert (plan["runs"], plan["device"]) == (True, "cuda" if gpu else "cpu")
    assert set(plan["placement"]) == {"device" if gpu else "ram"}
    assert bool(plan["cpu_experts"]) == (gpu == "8GiB")  # a mixture, part of it in RAM


def test_drafts_that_are_published_and_not_used_are_told(found, planned):
    asked = ("--model", "gemma-4-e4b-q4", "--ram", "16GiB")
    told = found(*asked)["drafts"]
    assert "google/gemma-4-E4B-it-assistant" in told
    assert f"  Other drafts   {told}\n" in planned(*asked)[1]
    assert found("--model", "qwen3-0.6b", "--ram", "16GiB")["drafts"] == ""


def test_the_bundled_model_is_planned_too_and_nothing_is_written(tmp_path):
    spec = ModelSpec("pocket", str(ROOT / "engine/bundled/pocket"))
    placed = place(Settings(home=tmp_path), spec)
    assert isinstance(placed.plan, Plan)
    assert (placed.spec.dtype, placed.spec.context) == (spec.dtype, placed.plan.context)
    assert not list(tmp_path.iterdir())


def test_a_plan_shows_every_choice_and_every_byte(planned):
    code, text = planned(*LLAMA_8B)
    expected = plan(imagined(8 * GIB, 16 * GIB), candidates("llama-3.1-8b"))
    assert code == 0
    assert isinstance(expected, Plan)
    assert text.startswith(f"llama-3.1-8b: {expected.stage}\n")
    assert all(reason.sentence in text for reason in expected.why)
    assert all(f"{gib(need.bytes)}  {need.what}" in text for need in expected.needs)


def test_wishes_reach_the_plan(found):
    wishes = ("--no-draft", "--context", "1000", "--dtype", "bfloat16")
    plan = found("--model", "llama-3.2-3b", "--ram", "64GiB", *wishes)
    assert (plan["context"], plan["dtype"], plan["draft_model"]) == (1000, "bfloat16", None)
    assert plan["device"] == "cpu"


def test_this_machine_is_planned_for_where_no_memory_is_given(found, home):
    plan = found("--model", "pocket")
    here = known_profile(Settings(home=home))
    (room,) = (free for tier, free in plan["room"] if tier == "ram")
    assert room <= here.ram.total
    assert set(plan["placement"]) <= {"ram", "device"}


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
def test_a_wrong_question_is_one_sentence(refused, arguments, sentence):
    assert sentence in refused("plan", *arguments)


@pytest.mark.parametrize(
    ("written", "size"),
    [("8GiB", 2**33), ("8g", 2**33), ("1.5 TB", 15 * 10**11), ("512MiB", 2**29), ("4096", 4096)],
)
def test_memory_as_people_write_it(written, size):
    assert memory(written) == size
