"""Races on the real pocket model: in turns, cold, and token by token the same."""

from dataclasses import replace
from multiprocessing import active_children

import pytest

from app.bench.compare.isolated_run import IsolatedRunner
from app.bench.compare.race import Race, RaceOptions, check_race, run_race
from app.bench.compare.service import BenchmarkService
from app.chat.assistant import Assistant
from app.errors import UnknownModel
from engine.errors import InvalidRequest
from engine.request import ModelFacts
from tests.app.asynchronous import asynchronous

FACTS = ModelFacts(
    "m",
    64,
    4096,
    2,
    9,
    ("none", "lookup", "suffix", "chain"),
    (("early_exit", "no exit is trained"),),
)
OPTIONS = RaceOptions(
    "Repeat this text exactly:\nAnna has a red hat and Ben has a blue boat.",
    ("lookup", "chain"),
    repeats=3,
    max_tokens=24,
)


def test_a_race_is_fair_and_lossless(assistant: Assistant):
    begun: list[tuple[int, str]] = []

    def changed() -> None:
        for name, lane in race.lanes.items():
            if lane.running and not lane.passes and begun[-1:] != [(race.round, name)]:
                begun.append((race.round, name))

    race = Race.of("pocket", OPTIONS, changed)

    @asynchronous
    async def drive() -> None:
        track = IsolatedRunner(assistant, assistant.loaded, lambda: None)
        await run_race(dict.fromkeys(race.lanes, track), race)

    drive()
    orders = [[name for number, name in begun if number == at] for at in range(4)]
    assert all(sorted(order) == ["chain", "lookup", "none"] for order in orders)
    assert {order[0] for order in orders[1:]} == {"none", "lookup", "chain"}
    plain, lookup, chain = race.results
    for one in (plain, lookup, chain):
        assert one.difference is None
        assert len(one.runs) == OPTIONS.repeats  # the warm-up is none of them
        assert all(0 < len(run.ids) <= 24 and run.rate > 0 for run in one.runs)
        assert all(run.stats.cached_tokens == 0 for run in one.runs)
        assert all(run.stats.drafter == one.name for run in one.runs)
    assert race.goal == len(plain.runs[0].ids)
    assert plain.tokens_per_pass == 1.0 < chain.tokens_per_pass
    assert 0 < chain.depths[0].accepted <= chain.depths[0].evaluated
    assert race.lanes["lookup"].text == "".join(one.text for one in lookup.runs[-1].passes)


def test_two_models_race_and_the_second_leaves_with_the_race(assistant: Assistant):
    @asynchronous
    async def drive() -> None:
        before = set(active_children())
        laboratory = BenchmarkService(assistant)
        with pytest.raises(InvalidRequest, match="pocket is loaded already"):
            laboratory.start_race(replace(OPTIONS, rival="pocket"))
        with pytest.raises(UnknownModel):
            laboratory.start_race(replace(OPTIONS, rival="nobody"))
        laboratory.start_race(RaceOptions("What is 12 + 30?", (), 1, 12, rival="pocket-draft"))
        await laboratory.ended()
        assert laboratory.problem == ""
        assert laboratory.race is not None
        own, rival = laboratory.race.results
        assert (own.name, rival.name) == ("pocket", "pocket-draft")
        assert rival.difference is None
        assert rival.speedup == pytest.approx(rival.rate / own.rate)
        assert set(active_children()) == before

    drive()


def refused(**changes: object) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check_race(replace(OPTIONS, **changes), FACTS)
    return str(caught.value)


def test_what_cannot_be_raced_is_refused_with_numbers():
    check_race(OPTIONS, FACTS)
    assert "empty" in refused(prompt=" \n")
    assert "0 modes" in refused(drafters=())
    assert "0 modes" in refused(drafters=("none",))
    assert "4 modes" in refused(drafters=("auto", "lookup", "suffix", "chain"))
    assert "no exit is trained" in refused(drafters=("early_exit",))
    assert "does not have it" in refused(drafters=("warp",))
    assert "repeats is 6" in refused(repeats=6)
    assert "length is 0" in refused(max_tokens=0)
    assert "half a character" not in refused(max_tokens=5000)


def test_plain_runs_once_however_often_it_is_named():
    lanes = replace(OPTIONS, drafters=("lookup", "none", "lookup")).lanes("m")
    assert list(lanes) == ["none", "lookup"]


def test_two_models_race_in_auto():
    assert replace(OPTIONS, rival="other").lanes("m") == {"m": "auto", "other": "auto"}
