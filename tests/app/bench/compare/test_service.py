"""Starting, stopping and watching measurements; the engine is a fake, all else real."""

import pytest

from app.bench.compare.benchmark import BenchmarkOptions
from app.bench.compare.race import RaceOptions
from app.bench.compare.service import BenchmarkService
from app.bench.measure import Difference
from app.chat.assistant import Assistant
from engine.errors import InvalidRequest
from tests.app import fake_engine
from tests.app.assisted import assisted, report_of, said
from tests.app.asynchronous import asynchronous

SHORT = RaceOptions("a", ("lookup", "specexec"), repeats=2, max_tokens=6)
LONG = RaceOptions("a", ("lookup",), repeats=1, max_tokens=1024)


async def until_round(laboratory: BenchmarkService, number: int) -> None:
    while laboratory.race is None or laboratory.race.round < number or not passed(laboratory):
        await laboratory.changed(laboratory.version)


def passed(laboratory: BenchmarkService) -> bool:
    race = laboratory.race
    return race is not None and any(lane.running and lane.passes for lane in race.lanes.values())


@asynchronous
async def test_a_lane_that_differs_is_shown_with_the_gap(tmp_path):
    async with assisted(tmp_path, fake_engine.mistaken) as assistant:
        laboratory = BenchmarkService(assistant)
        laboratory.start_race(SHORT)
        assert laboratory.racing
        await laboratory.ended()
        assert laboratory.problem == ""
        assert laboratory.race is not None
        plain, lookup, specexec = laboratory.race.results
        assert lookup.difference == Difference(1, 3, 103, 999, 103 / 8)
        assert lookup.words == (
            assistant.loaded.text.decode([103]),
            assistant.loaded.text.decode([999]),
        )
        assert specexec.difference is plain.difference is None
        assert not laboratory.busy


@asynchronous
async def test_stop_frees_the_engine_and_another_can_begin(tmp_path):
    async with assisted(tmp_path, fake_engine.endless) as assistant:
        laboratory = BenchmarkService(assistant)
        laboratory.start_race(LONG)
        await until_round(laboratory, 0)
        with pytest.raises(InvalidRequest, match="is running"):
            laboratory.start_benchmark(BenchmarkOptions())
        laboratory.cancel()
        await laboratory.ended()
        assert laboratory.problem.startswith("Stopped")
        assert laboratory.race is not None
        assert laboratory.race.results == ()
        assert (await report_of(assistant.reply(said("a", max_tokens=3)))).stats.emitted == 3
        laboratory.start_race(RaceOptions("a", ("lookup",), 1, 4))
        assert laboratory.problem == ""
        await laboratory.ended()
        assert laboratory.race.results


@asynchronous
async def test_a_changed_model_and_a_dead_engine_are_reported(tmp_path):
    async with assisted(tmp_path, fake_engine.endless) as assistant:
        laboratory = BenchmarkService(assistant)
        laboratory.start_race(LONG)
        await until_round(laboratory, 0)
        await assistant.current.here().worker.close()  # as a switch does
        await laboratory.ended()
        assert "Another model was chosen" in laboratory.problem
    async with assisted(tmp_path, fake_engine.fragile) as assistant:
        laboratory = BenchmarkService(assistant)
        laboratory.start_race(SHORT if "specexec" in assistant.facts.drafters else LONG)
        await laboratory.ended()
        assert laboratory.problem
        assert not laboratory.busy


@asynchronous
async def test_a_bad_request_begins_nothing(tmp_path):
    async with assisted(tmp_path, fake_engine.mistaken) as assistant:
        laboratory = BenchmarkService(assistant)
        for wish in (RaceOptions(" ", ("lookup",)), RaceOptions("a", ("chain",))):
            with pytest.raises(InvalidRequest):
                laboratory.start_race(wish)
        with pytest.raises(InvalidRequest):
            laboratory.start_benchmark(BenchmarkOptions("huge"))
        assistant.current.loading = "another"
        with pytest.raises(InvalidRequest, match="another is being loaded"):
            laboratory.start_race(SHORT)
        assistant.current.loading = ""
        assert not laboratory.busy
        assert laboratory.race is None
        laboratory.start_race(RaceOptions("word " * 99, ("lookup",)))  # the tokenizer's to say
        await laboratory.ended()
        assert "64" in laboratory.problem


@asynchronous
async def test_a_benchmark_is_kept_listed_and_removed(tmp_path):
    async with assisted(tmp_path, fake_engine.mistaken) as assistant:
        laboratory = BenchmarkService(assistant)
        await laboratory.read_saved()
        assert laboratory.saved == ()
        laboratory.start_benchmark(BenchmarkOptions("quick", ("lookup",)))
        assert laboratory.measuring
        await laboratory.ended()
        # most of the shipped prompts are longer than the fake's 64 tokens
        kept = laboratory.kept
        assert kept is not None, laboratory.problem
        assert kept.record.skipped > 0
        assert not kept.record.identical
        assert laboratory.saved == (kept,)
        assert await _saved_again(assistant) == (kept,)
        await laboratory.remove(kept.name)
        assert laboratory.saved == ()


async def _saved_again(assistant: Assistant) -> object:
    other = BenchmarkService(assistant)
    await other.read_saved()
    return other.saved
