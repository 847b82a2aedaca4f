"""Claims: every one runs on the real pocket, in miniature; rows hold only if every check does."""

import json
from dataclasses import replace

import pytest

from app.bench.lanes import Lane
from app.bench.measure import Measurement
from app.bench.options import CLAIMS, Conditions, FixedBench
from app.bench.papers import lossless, parallel
from app.bench.papers.auto import usual
from app.bench.papers.harness import Harness, over_best, per_pass, rates
from app.bench.papers.parallel import shown
from app.bench.prompt_files import load_prompts
from app.bench.rows import Check, row
from app.settings import load_settings
from engine.errors import ModelUnusable
from tests.app.bench.samples import sample

MINIATURE = {  # what makes a claim small enough for a test; its verdict then means nothing
    "sequoia": {"BUDGETS": (4,), "TEMPERATURES": (1.0,), "PROMPTS": 1, "TOKENS": 8},
    "specexec": {"BUDGETS": (4, 256), "PROMPTS": 1, "TOKENS": 8},
    "early_exit": {"PASS": 0.0, "EXITS": (2,), "LENGTHS": (2,), "PROMPTS": 1, "EDITS": 1, "TOKENS": 8},
    "goodput": {"INFLATE": 1, "LOADS": (2,), "LENGTHS": (2,), "PROMPTS": 2, "SWEPT": 1, "TOKENS": 8},
    "auto": {"INFLATE": 1, "TOKENS": 8, "SHORTLY": 8, "FIRST": 1, "FEW": 1, "SOON": 0.0},
    "history": {"INFLATE": 1, "TOKENS": 16, "ANSWERS": 1, "REPEATS": 1},
    "acceptance_head": {"COSTS": (1,), "LENGTHS": (2,), "PROMPTS": 1, "TOKENS": 8},
    "lossless": {"PROMPTS": 1, "TOKENS": 8, "EVERY": 30, "LAWS": ("no tests here",)},
}  # fmt: skip


@pytest.fixture(scope="module")
def instrument():
    prompts = load_prompts(None, 1)
    return Harness(load_settings(), "pocket", replace(prompts, open=prompts.open[:2]), silent)


def silent(text):
    """No progress."""


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_runs_and_says_what_it_measured(instrument, monkeypatch, name):
    for constant, value in MINIATURE[name].items():
        monkeypatch.setattr(f"app.bench.papers.{name}.{constant}", value)
    if name in ("sequoia", "specexec"):  # their checks name budgets that are not run here
        monkeypatch.setattr(f"app.bench.papers.{name}.BUDGETS", (64, 256))
        for constant in ("REPEATS", "SWEPT", "TOGETHER"):
            monkeypatch.setattr(f"app.bench.papers.sequoia.{constant}", {64: 1, 256: 1})
    found = shown(name, instrument)
    assert found.says
    assert found.figures
    assert all(value >= 0 for _, value in found.figures)


def test_a_model_without_a_draft_model_is_refused_in_one_sentence(instrument):
    loaded = instrument.loaded(1)
    alone = replace(
        loaded, parts=replace(loaded.parts, draft_model=None), no_draft="none is paired"
    )
    with pytest.raises(ModelUnusable, match="pocket: none is paired; choose pocket"):
        alone.separate_engine()


def test_a_row_holds_only_if_every_check_does():
    good, bad = Check("a", 1.0, 1.0), Check("b", 0.5, 0.97)
    assert row("x", [good], {}).holds
    missed = row("x", [good, bad], {"n": 1.0})
    assert not missed.holds
    assert "b 0.500 (at least 0.97) MISSED" in missed.says


def test_the_exit_code_and_the_file_show_what_was_missed(tmp_path, monkeypatch, capsys):
    rows = {
        "one": row("One", [Check("a", 2, 1)], {"x": 2}),
        "two": row("Two", [Check("b", 0, 1)], {}),
    }
    monkeypatch.setattr(parallel, "each_shown", lambda names, _: map(rows.get, names))
    file = tmp_path / "claims.json"

    def run(*names):
        return parallel.run(FixedBench("seeds", load_settings(), "pocket", None, file, only=names))

    assert run("one") == 0
    assert "1 of 1 claims hold" in capsys.readouterr().out.splitlines()[-1]
    assert run("one", "two") == 1
    assert "missed: Two" in capsys.readouterr().out.splitlines()[-1]
    written = json.loads(file.read_text())
    assert [r["holds"] for r in written["rows"]] == [True, False]
    assert written["rows"][0]["figures"] == {"x": 2}


def hiccups(*seconds):
    """Sessions of two lanes and two questions; the first lane's second answer takes these seconds."""
    lanes = (Lane("mine", "chain"), Lane("other", "lookup"))
    for second in seconds:
        samples = [sample(lane.name, (1, 1), (1, 2), 1.0) for lane in lanes]
        samples += [
            sample("mine", (2, 1), (1, 2), second),
            sample("other", (2, 1), (1, 2), 4.0),
        ]
        yield Measurement(lanes, Conditions(max_tokens=2, repeats=1), tuple(samples))


def test_of_several_sessions_a_hiccup_in_one_of_them_counts_for_nothing():
    found = usual(list(hiccups(2.0, 50.0, 3.0)))
    assert len(found.samples) == 4
    assert rates(found) == pytest.approx({"mine": 4 / (1 + 3), "other": 4 / (1 + 4)})
    [alone] = hiccups(50.0)
    assert set(usual([alone]).samples) == set(alone.samples)


def test_rates_and_tokens_per_pass_count_what_ran(instrument):
    lanes = [Lane("plain", "none"), Lane("lookup", "lookup")]
    prompts = instrument.prompts.edits[:2]
    found = instrument.run(1, prompts, lanes, Conditions(max_tokens=24, repeats=1))
    assert per_pass(found)["plain"] == 1
    assert per_pass(found)["lookup"] > 1
    samples = found.of(lanes[0])
    wanted = sum(s.timed for s in samples) / sum(s.seconds for s in samples)
    assert rates(found)["plain"] == pytest.approx(wanted)


@pytest.mark.parametrize(("places", "repeats"), [(((1, 1), (1, 2)), 2), (((1, 1), (2, 1)), 1)])
def test_the_lane_to_beat_is_chosen_by_the_other_repeat_or_of_one_by_the_other_prompts(
    places, repeats
):
    def run(lane, part, seconds):
        return sample(lane, places[part], tuple(range(10)), seconds)

    lanes = (Lane("lucky", "none"), Lane("steady", "lookup"), Lane("mine", "chain"))
    samples = (
        run("lucky", 0, 1.0), run("steady", 0, 2.0), run("mine", 0, 2.0),
        run("lucky", 1, 4.0), run("steady", 1, 2.0), run("mine", 1, 2.0),
    )  # fmt: skip
    conditions = Conditions(max_tokens=10, repeats=repeats)
    measured = Measurement(lanes, conditions, samples)
    found = over_best(measured, lanes[2])
    # of the first part the other one says steady (ratio 1), of the second it says lucky (ratio 2)
    assert found.ratio == pytest.approx(2**0.5)
    assert found.name == "steady"
    once = replace(measured, samples=samples[:3])
    assert over_best(once, lanes[2]).ratio == pytest.approx(0.5)


def test_a_file_with_too_few_kinds_of_prompts_is_reported_in_the_row(instrument):
    """One category counts two questions: SmartSpec's sweep took them all, and no ratio was left."""
    few = replace(instrument.prompts, open=(("all", instrument.prompts.problems[:10]),))
    found = shown("goodput", replace(instrument, prompts=few))
    assert not found.holds
    assert found.says.startswith("cannot be shown: it needs more than 8 prompts but gets 4")


# --- the tests of the laws as a row: real pytest, in a process of its own ---------------------------


@pytest.fixture
def few_laws(monkeypatch):
    """A test that takes no time instead of the laws."""
    monkeypatch.setattr(lossless, "LAWS", ("tests/engine/speculation/test_tree.py",))
    monkeypatch.setattr(lossless, "SAMPLED", "prefix")


def test_laws_that_cannot_be_tested_do_not_hold(few_laws, monkeypatch):
    monkeypatch.setattr(lossless, "LAWS", ("tests/no such file.py",))
    hold, said = lossless.laws()
    assert not hold
    assert said.startswith("no tests ran")


def test_other_plug_ins_of_pytest_do_not_run(few_laws, tmp_path, monkeypatch):
    """One that is installed wherever it likes, and breaks every run."""
    about = tmp_path / "hostile-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nhostile = hostile\n")
    (tmp_path / "hostile.py").write_text(
        "def pytest_configure(config):\n    raise RuntimeError('not here')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    hold, said = lossless.laws()
    assert hold, said
    assert " passed in " in said
