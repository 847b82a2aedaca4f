"""Races on the real pocket model: in turns, cold, and token by token the same."""

from dataclasses import replace
from multiprocessing import active_children

import pytest

from app.bench.compare.isolated_run import IsolatedRunner
from app.bench.compare.race import LaneResult, Race, RaceOptions, check_race, results, run_race
from app.bench.compare.service import BenchmarkService
from app.bench.lanes import Lane
from app.bench.measure import Difference, Measurement
from app.bench.options import Conditions
from app.errors import UnknownModel
from engine.errors import InvalidRequest
from engine.request import ModelFacts
from tests.app.asynchronous import asynchronous
from tests.app.bench.samples import watched

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


@asynchronous
async def test_a_race_is_fair_and_lossless(assistant):
    begun: list[tuple[int, str]] = []

    def changed() -> None:
        for name, lane in race.lanes.items():
            if lane.running and not lane.passes and begun[-1:] != [(race.round, name)]:
                begun.append((race.round, name))

    race = Race("pocket", OPTIONS, changed)

    runner = IsolatedRunner(assistant, assistant.loaded, OPTIONS.max_tokens, lambda: None)
    await run_race(dict.fromkeys(race.lanes, runner), race)
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
    assert plain.counts.tokens_per_pass == 1.0 < chain.counts.tokens_per_pass
    assert 0 < chain.depths[0].accepted <= chain.depths[0].evaluated
    assert race.lanes["lookup"].text == "".join(one.text for one in lookup.runs[-1].passes)


@asynchronous
async def test_two_models_race_and_the_second_leaves_with_the_race(assistant):
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


def test_lanes_are_plain_once_and_modes_or_two_models():
    lanes = replace(OPTIONS, drafters=("lookup", "none", "lookup")).lanes("m")
    assert lanes == (Lane("none", "none"), Lane("lookup", "lookup"))
    lanes = replace(OPTIONS, rival="other").lanes("m")
    assert lanes == (Lane("m", "auto"), Lane("other", "auto"))


def shown(*rounds: dict[str, tuple[tuple[int, ...], float]], differences=()) -> list[LaneResult]:
    """Results of samples whose tokens and rates are known."""
    samples = [
        watched(name, ids, rate, (1, repeat))
        for repeat, one in enumerate(rounds, 1)
        for name, (ids, rate) in one.items()
    ]
    lanes = tuple(Lane(name, name) for name in rounds[0])
    conditions = Conditions(repeats=len(rounds))
    measured = Measurement(lanes, conditions, tuple(samples), dict(differences))
    return results(measured, lambda ids: f"<{ids[0]}>")


def test_a_difference_has_the_words_there_and_none_where_an_answer_ends():
    answers = {"none": ((1, 2, 3), 10.0), "lookup": ((1, 9, 3), 10.0), "chain": ((1,), 10.0)}
    found = {"lookup": Difference(1, 1, 2, 9, 0.25, 2), "chain": Difference(1, 1, 2, None, 0.25)}
    plain, lookup, chain = shown(answers, differences=found)
    assert (plain.difference, plain.words) == (None, ("", ""))
    assert (lookup.difference, lookup.words) == (found["lookup"], ("<2>", "<9>"))
    assert chain.words == ("<2>", "")
