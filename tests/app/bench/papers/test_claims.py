"""Claims: every one runs on the real pocket, in miniature; rows hold only if every check does."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from app.bench.lanes import Lane
from app.bench.measure import Measurement
from app.bench.options import CLAIMS, Conditions, SeedsOptions
from app.bench.papers import auto as auto_claim
from app.bench.papers import command, early_exit
from app.bench.papers.auto import promising, usual
from app.bench.papers.command import show_claims
from app.bench.papers.harness import COSTS, Harness, Readers, over_best, per_pass, rates
from app.bench.papers.parallel import shown
from app.bench.prompt_files import EDIT, SHIPPED, WORD_PROBLEM, load_prompts
from app.bench.rows import Check, row, summary
from app.errors import PromptFileError
from app.settings import load_settings
from engine.errors import ModelUnusable
from engine.statistics.pass_cost import PassCost
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


@pytest.mark.parametrize(
    ("seconds", "suiting", "tries"), [(0.0, 1, 1), (0.012, 2, 3), (0.024, 4, 4), (9.0, 32, 6)]
)
def test_claims_are_shown_at_the_most_expensive_pass_that_is_short_enough(
    instrument, monkeypatch, seconds, suiting, tries
):
    """Here a pass takes 6 ms for each inflation, and none is loaded that is not needed to know that."""
    tried = []

    def loaded(self, inflate):
        tried.append(inflate)
        cost = PassCost({1: 0.006 * inflate, 8: 9.0})
        return SimpleNamespace(parts=SimpleNamespace(cost=cost))

    monkeypatch.setattr(Harness, "loaded", loaded)
    fresh = Harness(*instrument.asked, silent)
    assert [fresh.inflation(seconds) for _ in range(2)] == [suiting] * 2
    assert tried == list(COSTS[:tries])


def test_a_model_without_a_draft_model_is_refused_in_one_sentence(instrument):
    loaded = instrument.loaded(1)
    alone = replace(
        loaded, parts=replace(loaded.parts, draft_model=None), no_draft="none is paired"
    )
    with pytest.raises(ModelUnusable, match="pocket: none is paired; choose pocket"):
        alone.separate_engine(Readers())


def test_a_row_holds_only_if_every_check_does():
    good, bad = Check("a", 1.0, 1.0), Check("b", 0.5, 0.97)
    assert row("x", [good], {}).holds
    missed = row("x", [good, bad], {"n": 1.0})
    assert not missed.holds
    assert "b 0.500 (at least 0.97) MISSED" in missed.says


def test_the_exit_code_and_the_file_tell_what_was_missed(tmp_path, monkeypatch, capsys):
    rows = {
        "one": row("One", [Check("a", 2, 1)], {"x": 2}),
        "two": row("Two", [Check("b", 0, 1)], {}),
    }
    monkeypatch.setattr(command, "each_shown", lambda names, _: map(rows.get, names))
    file = tmp_path / "claims.json"

    def run(*names):
        return show_claims(SeedsOptions(load_settings(), "pocket", None, file, names))

    assert run("one") == 0
    assert "1 of 1 claims hold" in capsys.readouterr().out.splitlines()[-1]
    assert run("one", "two") == 1
    assert "missed: Two" in capsys.readouterr().out.splitlines()[-1]
    written = json.loads(file.read_text())
    assert [r["holds"] for r in written["rows"]] == [True, False]
    assert written["rows"][0]["figures"] == {"x": 2}


def test_the_summary_counts():
    rows = [row("A", [Check("a", 1, 2)], {})]
    assert summary(rows, 90) == "0 of 1 claims hold in 1.5 minutes; missed: A"


def test_a_drafter_that_is_far_behind_or_always_behind_another_one_does_not_race():
    kinds = [
        {"plain": 9, "first": 20, "beaten": 19, "special": 5, "even": 20, "far": 17.9, "near": 18},
        {"plain": 9, "first": 30, "beaten": 28, "special": 31, "even": 30, "far": 5, "near": 4},
        {"plain": 9, "first": 10, "beaten": 9.5, "special": 5, "even": 9, "far": 8, "near": 10},
        {"plain": 9, "first": 100, "beaten": 50, "special": 5, "even": 1, "far": 60, "near": 6},
    ]
    lanes = [Lane(name, name) for name in kinds[0]]
    found = promising(kinds, lanes)
    assert [lane.name for lane in found] == ["first", "special", "even", "near"]
    assert promising(kinds[:1], lanes[:1]) == lanes[:1]


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


@pytest.mark.parametrize(("soon", "raced"), [(60.0, 3), (0.0, 1)])
def test_a_machine_that_is_fast_enough_races_in_several_sessions(monkeypatch, soon, raced):
    monkeypatch.setattr(auto_claim, "SOON", soon)
    left = hiccups(*range(2, 2 + 3))
    auto_claim.sessions(lambda: next(left))
    assert len(list(left)) == 3 - raced


@pytest.mark.parametrize(("prompts", "asked"), [(2, [(2, 16)]), (6, [(2, 16), (4, 12)])])
def test_the_last_pairs_end_a_sweep_early_and_all_others_are_asked_everything(
    instrument, monkeypatch, prompts, asked
):
    """Pair n needs n seconds more for a prompt than the first pair, and all of them longer for later ones."""
    races = []

    def race(_, inflate, asked, lanes, conditions):
        races.append((len(asked), len(lanes)))
        pairs = [f"exit {e} length {n}" for e in early_exit.EXITS for n in early_exit.LENGTHS]
        samples = tuple(
            sample(lane.name, (group, 1), tuple(range(10)), pairs.index(lane.name) + 5 * group**2)
            for lane in lanes
            for group in range(1, len(asked) + 1)
        )
        return Measurement(tuple(lanes), conditions, samples)

    monkeypatch.setattr(Harness, "race", race)
    found, ranking = early_exit.sweep(instrument, 1, instrument.prompts.problems[:prompts])
    assert [lane.name for lane in ranking] == list(found)
    assert races == asked
    assert len(found) == 16
    seconds = [5, 20, 5, 20, 45, 80][:prompts]
    assert found["exit 1 length 1"] == pytest.approx(10 * prompts / sum(seconds))
    assert found["exit 6 length 8"] == pytest.approx(20 / (20 + 35))


def test_shipped_prompts_have_all_kinds():
    prompts = load_prompts(None, 12)
    assert len(prompts.problems) >= 30
    assert len(prompts.edits) >= 15
    assert {len(group) for _, group in prompts.open} == {10}
    assert len(prompts.open) == 13
    assert not {WORD_PROBLEM, EDIT} & {name for name, _ in prompts.open}
    assert len(prompts.questions(("writing", "qa"))) == 4
    assert len(prompts.questions((), 3)) == 39
    assert SHIPPED.stat().st_size < 128_000


def test_a_file_of_ones_own_replaces_the_open_questions(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"turns": ["a", "b"]}\n{"turns": ["c"], "category": "mine"}\n')
    prompts = load_prompts(file, 5)
    assert prompts.open == (("all", (("a",),)), ("mine", (("c",),)))
    assert prompts.questions(("writing",)) == (("a",), ("c",))
    assert prompts.problems
    with pytest.raises(PromptFileError):
        load_prompts(tmp_path / "none.jsonl", 5)


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


def test_a_file_with_too_few_kinds_of_prompts_is_told_in_the_row(instrument):
    """One category counts two questions: SmartSpec's sweep took them all, and no ratio was left."""
    few = replace(instrument.prompts, open=(("all", instrument.prompts.problems[:10]),))
    found = shown("goodput", replace(instrument, prompts=few))
    assert not found.holds
    assert found.says.startswith("cannot be shown: it needs more than 8 prompts but gets 4")
