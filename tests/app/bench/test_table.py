"""The table for people: what was measured is said in words, and what is not known is left open."""

from dataclasses import replace

import pytest

from app.bench.lanes import Lane
from app.bench.measure import Difference, Measurement, Sample
from app.bench.options import Conditions
from app.bench.report import BenchReport, Machine
from app.bench.summary import summarize
from app.bench.table import table
from engine.request import ModelFacts, ModelSpec, SamplingParams
from tests.app.bench.samples import sample

FACTS = ModelFacts("m", 64, 100, 2, 30_300_000, ("none", "lookup"))
MACHINE = Machine("a processor", 2, 1, "2.13.0", "2026-01-02T03:04:05+00:00")
LANES = (Lane("plain", "none"), Lane("quick", "lookup"))
RUNS = (sample("plain", (1, 1), (1, 2, 3, 4), 2.0), sample("quick", (1, 1), (1, 2, 3, 4), 0.5))
ONCE = Conditions(repeats=1)


def lines(
    runs: tuple[Sample, ...] = RUNS,
    conditions: Conditions = ONCE,
    spec: ModelSpec = ModelSpec("m", ""),  # noqa: B008 - frozen
    difference: Difference | None = None,
) -> list[str]:
    differences = {} if difference is None else {"quick": difference}
    measurement = Measurement(LANES, conditions, runs, differences)
    return list(table(BenchReport(MACHINE, spec, FACTS, measurement, summarize(measurement))))


def row(name: str, found: list[str]) -> list[str]:
    return next(line.split() for line in found if line.startswith(name))


def test_an_inflated_model_and_several_prompts_at_once_are_named():
    text = "\n".join(
        lines(conditions=replace(ONCE, concurrent=3), spec=ModelSpec("m", "", inflate=4))
    )
    assert "inflated: every feed-forward part is 4 times as wide" in text
    assert "The same function at a larger cost" in text
    assert "3 at a time" in text
    assert "all tokens over wall time" in text


def test_a_row_has_every_number():
    found = lines()
    assert row("plain ", found)[1:] == ["2.0", "2.0-2.0", "-", "-", "2.00", "4", "2", "500", "ms", "-"]  # fmt: skip
    assert row("quick ", found)[1:] == ["8.0", "8.0-8.0", "4.00", "4.00-4.00", "2.00", "4", "2", "125", "ms", "1/1"]  # fmt: skip
    assert "accepted of evaluated by depth, quick: 0.67 0.50" in found
    assert found[-1] == "every token agrees"


def test_near_ties_are_counted():
    tied = [replace(run, stats=replace(run.stats, near_ties=1)) for run in RUNS[1:]]
    assert "near ties decoded again, quick: 1 of 4 tokens" in lines((RUNS[0], *tied))


def test_columns_are_below_their_headings():
    found = lines()
    head = next(line for line in found if line.startswith("lane"))
    cells = next(line for line in found if line.startswith("quick "))
    for heading, cell in (("tokens/s", "8.0"), ("tokens/pass", "2.00"), ("as plain", "1/1")):
        assert head.index(heading) + len(heading) == cells.index(cell) + len(cell)


def test_conditions_machine_and_the_dropped_round_are_shown():
    text = "\n".join(lines())
    assert "m, 30.3 million parameters, float32; greedy; at most 256 tokens an answer" in text
    assert "1 prompt, 1 repeat, 1 at a time, lanes taking turns" in text
    assert "one warm-up round of all lanes on the first prompt was dropped" in text
    assert "a processor; 2 cores, 1 thread, torch 2.13.0, 2026-01-02" in text
    assert "inflated" not in text
    assert "decoding alone" in text
    assert "dropped" not in "\n".join(lines(conditions=replace(ONCE, warm_up=False)))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Difference(1, 2, 3, 9, 0.25), "plain 3, drafted 9; plain's gap between its two largest logits there is 0.25"),
        (Difference(1, 2, 3, None, None), "plain 3, drafted ends; plain's gap between its two largest logits there is not known"),
    ],
)  # fmt: skip
def test_a_difference_is_shown_and_nothing_agrees(found, said):
    wrong = (RUNS[0], sample("quick", (1, 1), (1, 2, 9), 0.5))
    shown = lines(wrong, difference=found)
    assert shown[-1] == f"quick differs first in prompt 1 at token 2: {said}"
    assert row("quick ", shown)[-1] == "0/1"


def test_fresh_draws_are_sampled_not_compared():
    shown = lines(conditions=replace(ONCE, sampling=SamplingParams(0.6, top_p=0.9)))
    assert row("quick ", shown)[-1] == "sampled"
    assert shown[-1].startswith("sampled, not compared")
    assert "temperature 0.6, top-p 0.9, drawn afresh" in shown[0]
    few = lines(conditions=replace(ONCE, sampling=SamplingParams(0.6, top_k=20, min_p=0.05)))
    assert "temperature 0.6, top-p 1, top-k 20, min-p 0.05, drawn afresh" in few[0]
    seeded = lines(conditions=replace(ONCE, sampling=SamplingParams(0.6, seed=4)))
    assert "seed 4" in seeded[0]
    assert seeded[-1] == "every token agrees"
