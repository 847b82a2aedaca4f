"""The benchmark on the real pocket model: every category, every lane, in turns."""

import pytest

from app.bench.compare.benchmark import SIZES, Benchmark, BenchmarkOptions, run_benchmark
from app.bench.compare.isolated_run import IsolatedRunner
from app.bench.compare.record import BenchmarkRecord, record
from app.bench.measure import Measurement
from app.bench.prompt_files import Tagged, shipped_questions
from app.chat.assistant import Assistant
from engine.errors import InvalidRequest
from engine.request import ModelFacts
from tests.app.asynchronous import asynchronous

FACTS = ModelFacts("m", 64, 4096, 2, 9, ("none", "lookup"), (("chain", "it has no draft"),))
SPEC_BENCH = {
    "humaneval", "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
    "translation", "summarization", "qa", "math_reasoning", "rag",
}  # fmt: skip


async def driven(assistant: Assistant, benchmark: Benchmark) -> Measurement:
    most, changed = benchmark.size.max_tokens, benchmark.changed
    return await run_benchmark(
        IsolatedRunner(assistant, assistant.loaded, most, changed), benchmark
    )


def test_every_category_is_asked_as_often():
    for size in SIZES.values():
        asked = [question.category for question in shipped_questions(size.each)]
        assert set(asked) == {*SPEC_BENCH, "word problem", "edit"}
        assert {asked.count(name) for name in set(asked)} == {size.each}


def test_lanes_are_what_the_size_says_and_the_model_has():
    assert BenchmarkOptions("quick").lanes(FACTS) == ("none", "auto")
    assert BenchmarkOptions("modes").lanes(FACTS) == ("none", "auto", "lookup")
    assert BenchmarkOptions("quick", ("lookup",)).lanes(FACTS) == ("none", "lookup")
    with pytest.raises(InvalidRequest, match="it has no draft"):
        BenchmarkOptions("quick", ("chain",)).lanes(FACTS)
    with pytest.raises(InvalidRequest, match="no size 'huge'; choose quick"):
        BenchmarkOptions("huge").lanes(FACTS)


@asynchronous
async def test_a_benchmark_counts_warms_up_and_records(assistant):
    seen: list[tuple[str, int, float | None]] = []
    options = BenchmarkOptions("quick", ("lookup",))
    short = [
        one for one in shipped_questions(1) if one.category in ("edit", "word problem", "math")
    ]
    benchmark = Benchmark(
        options,
        options.lanes(assistant.facts),
        tuple(short),
        lambda: seen.append((benchmark.now, benchmark.done, benchmark.seconds_left)),
    )

    measured = await driven(assistant, benchmark)
    assert benchmark.done == benchmark.total == 8
    assert benchmark.seconds_left == 0
    assert [now for now, _, _ in seen[:2]] == ["warm-up, none", "warm-up, lookup"]
    assert [left is None for _, _, left in seen] == [True, True, *[False] * 6]
    firsts = [now.rpartition(", ")[2] for now, _, _ in seen[2::2]]
    assert firsts == ["lookup", "none", "lookup"]  # which lane begins changes
    assert [s.prompt for s in measured.samples] == [1, 1, 2, 2, 3, 3]

    whole = record(benchmark, measured, assistant.loaded)
    plain, lookup = whole.lanes
    assert (plain.drafter, lookup.drafter, whole.questions) == ("none", "lookup", 3)
    assert whole.identical
    assert plain.all.speedup is None
    assert lookup.all.speedup == pytest.approx(lookup.all.rate / plain.all.rate)
    assert list(lookup.categories) == [one.category for one in short]
    for field in ("tokens", "passes", "drafted", "accepted", "answers"):
        parts = sum(getattr(one, field) for one in lookup.categories.values())
        assert parts == getattr(lookup.all, field) > 0
    assert lookup.passes_by_drafter["lookup"] > 0
    written = whole.model_dump_json()
    assert BenchmarkRecord.model_validate_json(written) == whole
    assert not any(question.turns[0][:40] in written for question in short)
    assert whole.best == lookup


@asynchronous
async def test_prompts_past_the_context_are_skipped_and_counted(assistant):
    edit = next(one for one in shipped_questions(1) if one.category == "edit")
    long = Tagged("qa", ("word " * 5000,))
    options = BenchmarkOptions("quick", ("lookup",))
    benchmark = Benchmark(options, ("none", "lookup"), (long, edit), lambda: None)

    whole = record(benchmark, await driven(assistant, benchmark), assistant.loaded)
    assert (whole.questions, whole.skipped, benchmark.done, benchmark.total) == (1, 1, 4, 4)
    assert list(whole.lanes[1].categories) == ["edit"]
