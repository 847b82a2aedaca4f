"""The loop over the real engine: order of lanes, cold caches, conversations, what differs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.bench.lanes import Lane
from app.bench.measure import (
    Difference,
    Measurement,
    Order,
    Progress,
    Watcher,
    find_difference,
    finished,
    measure,
    take_turns,
)
from app.bench.runners import EngineRunner, base_request
from app.bench.summary import runs_of
from app.request import Message
from engine.build import assemble, load
from engine.engine import Engine
from engine.interfaces.target import Rows
from engine.models.own.target import TorchTarget
from engine.request import (
    GenerationRequest,
    SamplingParams,
)
from tests.app.bench.measuring import (
    CHAIN,
    LOOKUP,
    PLAIN,
    REPEAT,
    SHORT,
    SPEC,
    TEXT,
    Mistaken,
    Watched,
    run,
    talks,
)
from tests.app.bench.samples import sample


class TestOrder:
    def test_lanes_take_turns_at_being_first(self, engine):
        lanes = (PLAIN, LOOKUP, CHAIN)
        conditions = replace(SHORT, repeats=2, max_tokens=2)
        found = run(engine, ("a",), ("b",), lanes=lanes, conditions=conditions)
        order = [sample.lane for sample in found.samples]
        assert order[:3] == ["plain", "lookup", "chain"]
        assert order[3:6] == ["lookup", "chain", "plain"]
        assert order[6:9] == ["chain", "plain", "lookup"]
        places = [(s.prompt, s.group, s.repeat) for s in found.samples[::3]]
        assert places == [(1, 1, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2)]

    def test_one_round_of_all_lanes_on_the_first_prompt_is_dropped(self, engine):
        watched = Watched(engine)
        shown: list[str] = []
        warm = replace(SHORT, warm_up=True, max_tokens=2)
        found = run(watched, ("a",), ("b",), conditions=warm, watcher=Progress(shown.append))
        assert len(found.samples) == 4
        first = TEXT.encode_chat([Message("user", "a")])
        assert [request.prompt == first for request in watched.requests] == [True] * 4 + [False] * 2
        assert shown[:4] == [
            "prompt 1, warm-up: plain",
            "prompt 1, warm-up: lookup",
            "prompt 1, repeat 1: lookup",
            "prompt 1, repeat 1: plain",
        ]

    def test_what_is_known_comes_after_every_round(self, engine):
        sizes: list[int] = []

        class Sizes(Watcher):
            def update(self, measurement: Measurement) -> None:
                sizes.append(len(measurement.samples))

        run(engine, ("a",), ("b",), conditions=replace(SHORT, repeats=2), watcher=Sizes())
        assert sizes == [2, 4, 6, 8]

    def test_with_turns_at_every_pass_each_lane_steps_once_before_any_steps_again(self):
        async def lane(steps: int):
            for step in range(steps):
                yield step

        async def seen(lanes: dict[str, int]) -> list[tuple[str, int]]:
            return [one async for one in take_turns({n: lane(s) for n, s in lanes.items()})]

        lanes = {"a": 5, "b": 5, "c": 2}
        found = asyncio.run(seen(lanes))
        for name, steps in lanes.items():
            assert [step for lane, step in found if lane == name] == list(range(steps))
        for first in (0, 3):  # both rounds that all three take part in
            assert sorted(step for _, step in found[first : first + 3]) == [first // 3] * 3
        assert len({tuple(lane for lane, _ in found[n : n + 2]) for n in range(6, 12, 2)}) == 2
        assert asyncio.run(seen({})) == []


class TestCaches:
    @pytest.mark.parametrize("at_once", [1, 2])
    def test_are_cold_for_every_run_in_both_models(self, at_once):
        """Every lane and repeat reads every prompt, wherever it may still be from the one before."""
        spec = replace(SPEC, slots=2)
        parts, no_draft = load(spec)
        read = {"target": 0, "draft": 0}

        def count(name: str, model: TorchTarget) -> None:
            feed, grow = model.feed, model.grow

            def fed(slot: int, tokens: Sequence[int]) -> object:
                read[name] += len(tokens)
                return feed(slot, tokens)

            def grown(batch: Sequence[Rows]) -> object:
                read[name] += sum(len(rows.tokens) for rows in batch)
                return grow(batch)

            model.feed, model.grow = fed, grown  # type: ignore[assignment, method-assign]

        engine = assemble(spec, parts, no_draft)
        count("target", parts.target)
        count("draft", parts.draft_model)
        turns = [(REPEAT,), (f"Again. {REPEAT}",)][:at_once]
        conditions = replace(SHORT, repeats=2, concurrent=at_once)
        lanes = (PLAIN, CHAIN, Lane("again", "chain"))
        found = run(engine, *turns, lanes=lanes, conditions=conditions)
        assert {s.stats.cached_tokens for s in found.samples} == {0}
        prompts = [TEXT.encode_chat([Message("user", said)]) for (said,) in turns]
        tokens = sum(len(prompt) - 1 for prompt in prompts)
        assert read["target"] >= 2 * len(lanes) * tokens
        assert read["draft"] >= 2 * 2 * tokens


class TestLearning:
    """A repeat must not find the answer that an earlier run of the same prompt gave."""

    LANES = (PLAIN, Lane("suffix", "suffix", "fixed"), Lane("again", "suffix", "fixed", depth=9))

    def test_starts_again_with_every_lane_repeat_and_measurement(self, engine):
        asked = replace(SHORT, max_tokens=20, repeats=3, warm_up=True)
        for _ in range(2):
            found = run(engine, ("Hello",), lanes=self.LANES, conditions=asked)
            drafted = [s.stats for s in found.samples if s.lane != "plain"]
            [(_, accepted)] = {(each.drafted, each.accepted) for each in drafted}
            assert accepted <= 2, "what the answer itself repeats"

    @pytest.mark.parametrize("order", Order)
    def test_continues_from_prompt_to_prompt(self, engine, order):
        """The same prompt twice in a file is the user's wish: the second finds the first."""
        asked = replace(SHORT, max_tokens=20, repeats=2)
        suffix = self.LANES[1]
        runner = EngineRunner(engine, base_request(asked, TEXT.stop_tokens))
        prompts = talks(engine, [("Hello",), ("Hello",)], asked)
        found = finished(measure([suffix], prompts, asked, {suffix.name: runner}, order=order))
        accepted = [s.stats.accepted for s in found.of(suffix)]
        assert max(accepted[:2]) <= 2
        assert min(accepted[2:]) > 5


class TestMeasure:
    def test_what_a_sample_holds(self, engine):
        found = run(engine, (REPEAT,), lanes=(PLAIN, CHAIN))
        plain, chain = found.samples
        assert (plain.lane, len(plain.ids), plain.stats.passes) == ("plain", 6, 6)
        assert plain.seconds == plain.stats.decode_seconds
        assert plain.rate == 6 / plain.seconds
        assert plain.stats.prompt_seconds < plain.first_seconds
        assert plain.first_seconds < plain.stats.prompt_seconds + plain.seconds
        assert chain.ids == plain.ids
        assert found.baseline == PLAIN
        assert found.differences == {}

    def test_later_turns_follow_plains_answers_in_every_lane(self, engine):
        watched = Watched(engine)
        found = run(watched, ("Hello", "Thank you"), conditions=replace(SHORT, max_tokens=20))
        said = TEXT.decode(found.of(PLAIN)[0].ids)
        messages = [Message("user", "Hello"), Message("assistant", said), Message("user", "Thank you")]  # fmt: skip
        second = TEXT.encode_chat(messages)
        assert said
        asked = [request.prompt == second for request in watched.requests]
        assert asked == [False, False, True, True]
        assert [s.prompt for s in found.samples] == [1, 1, 2, 2]

    def test_turns_past_the_context_are_skipped_with_what_follows(self, engine):
        found = run(engine, ("word " * 5000, "b"), ("c",))
        assert found.skipped == 2
        assert {s.prompt for s in found.samples} == {1}

    def test_several_prompts_run_at_once(self, pair_engine):
        both = replace(SHORT, concurrent=2)
        found = run(pair_engine, (REPEAT,), ("Hello",), ("Who are you?", "b"), conditions=both)
        plain = found.of(PLAIN)
        assert [(s.group, s.prompt) for s in plain] == [(1, 1), (1, 2), (2, 3), (3, 4)]
        first = runs_of(plain)[0]
        assert first.timed == sum(len(s.ids) for s in plain[:2])
        assert first.seconds > max(s.stats.decode_seconds for s in plain[:2])
        assert found.differences == {}

    def test_tokens_are_drawn_again_without_a_seed_and_kept_with_one(self, engine):
        hot = replace(SHORT, sampling=SamplingParams(3.0), repeats=2)
        first, second = run(engine, (REPEAT,), lanes=(PLAIN,), conditions=hot).samples
        assert first.ids != second.ids
        seeded = replace(hot, sampling=SamplingParams(3.0, seed=5))
        again = run(engine, (REPEAT,), lanes=(PLAIN, CHAIN), conditions=seeded)
        assert len({s.ids for s in again.samples}) == 1
        assert again.differences == {}


class TestDifferences:
    @pytest.mark.parametrize(
        ("plain", "drafted", "found"),
        [
            ((1, 2, 3), (1, 2, 3), None),
            ((1, 2, 3), (1, 9, 3), (1, 2, 9)),
            ((1, 2), (1,), (1, 2, None)),
            ((1,), (1, 2), (1, None, 2)),
            ((), (), None),
        ],
    )
    def test_the_first_is_found(self, plain, drafted, found):
        pair = (sample(name, (7, 2), ids, 1.0) for name, ids in (("none", plain), ("x", drafted)))
        assert find_difference(*pair) == (found and Difference(7, *found, None, repeat=2))

    def test_the_first_is_shown_with_the_gap_that_plain_had_there(self, engine):
        """The gap costs an extra plain run, and only where something differs."""
        lookup = Lane("lookup", "lookup", depth=0)  # one token a pass
        watched = Mistaken(engine)
        found = run(watched, ("Hello",), ("Who are you?",), lanes=(PLAIN, lookup))
        [(lane, difference)] = found.differences.items()
        plain = found.of(PLAIN)[1]
        assert (lane, difference.prompt, difference.token) == ("lookup", 2, 2)
        assert (difference.plain, difference.drafted) == (plain.ids[2], 4000)
        asked = [request for request in watched.requests if request.margins]
        assert [request.drafter for request in asked] == ["none"]
        margins = self.margins(engine, asked[0])
        assert difference.gap == pytest.approx(margins[2], rel=1e-3)
        assert difference.gap > 0

    @staticmethod
    def margins(engine: Engine, request: GenerationRequest) -> list[float]:
        engine.submit(request)
        found: list[float] = []
        while engine.busy:
            found += [m for _, event in engine.step() for m in getattr(event, "margins", ())]
        return found


def test_the_engines_are_left_idle(engine, pair_engine):
    assert not engine.busy
    assert not pair_engine.busy
