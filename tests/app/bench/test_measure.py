"""The loop over the real engine: order of lanes, cold caches, conversations, what differs."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.bench.lanes import Lane
from app.bench.measure import (
    Conversations,
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
from app.bench.options import Conditions
from app.bench.runners import Clock, EngineRunner, base_request
from app.bench.summary import runs_of
from app.errors import RequestFailed
from app.request import Message
from app.text.chat_text import ChatText
from engine.build import assemble, build, load
from engine.engine import Engine
from engine.errors import InvalidRequest
from engine.interfaces.target import Rows
from engine.models.own.target import TorchTarget
from engine.request import (
    Done,
    Event,
    FinishReason,
    GenerationRequest,
    ModelFacts,
    ModelSpec,
    SamplingParams,
    Tokens,
)
from tests.app.bench.samples import sample

BUNDLED = Path(__file__).parents[3] / "engine" / "bundled"
SPEC = ModelSpec("pocket", str(BUNDLED / "pocket"), str(BUNDLED / "pocket-draft"), exit_layer=4)
TEXT = ChatText.load(BUNDLED / "pocket")
PLAIN, LOOKUP, CHAIN = Lane("plain", "none"), Lane("lookup", "lookup"), Lane("chain", "chain")
REPEAT = "Repeat this: a b c a b c a b c"
SHORT = Conditions(max_tokens=6, repeats=1, warm_up=False)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return build(replace(SPEC, slots=1))


@pytest.fixture(scope="module")
def pair_engine() -> Engine:
    return build(replace(SPEC, slots=2))


class Watched:
    """The real engine; remembers what it was asked, and may alter what it answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.numbers: dict[int, GenerationRequest] = {}

    @property
    def facts(self) -> ModelFacts:
        return self.engine.facts

    @property
    def busy(self) -> bool:
        return self.engine.busy

    @property
    def requests(self) -> list[GenerationRequest]:
        """What was not cancelled before it began."""
        return list(self.numbers.values())

    def submit(self, request: GenerationRequest) -> int:
        number = self.engine.submit(request)
        self.numbers[number] = request
        return number

    def cancel(self, request_id: int) -> None:
        self.engine.cancel(request_id)
        del self.numbers[request_id]

    def step(self) -> list[tuple[int, Event]]:
        found = self.engine.step()
        return [(n, self.altered(self.numbers[n], e) if n in self.numbers else e) for n, e in found]

    def altered(self, request: GenerationRequest, event: Event) -> Event:
        return event


class Mistaken(Watched):
    """The drafter lookup gets the third token wrong, in every answer but the first."""

    seen = 0

    def altered(self, request: GenerationRequest, event: Event) -> Event:
        wrong = request.drafter == "lookup" and request.prompt != self.requests[0].prompt
        if not (wrong and isinstance(event, Tokens)):
            return event
        self.seen += 1
        return replace(event, ids=(4000, *event.ids[1:])) if self.seen == 3 else event


def talks(engine, turns, conditions: Conditions) -> Conversations:
    return Conversations(TEXT, engine.facts.context, turns, conditions.together)


def run(
    engine, *turns: tuple[str, ...], lanes=(PLAIN, LOOKUP), conditions=SHORT, watcher=None
) -> Measurement:
    """By answers, on one engine."""
    clock = Clock.DECODING if conditions.together == 1 else Clock.WALL
    runner = EngineRunner(engine, base_request(conditions, TEXT.stop_tokens), clock)
    runners = {lane.name: runner for lane in lanes}
    prompts = talks(engine, turns, conditions)
    return finished(measure(lanes, prompts, conditions, runners, watcher))


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


@pytest.fixture(scope="module")
def separate():
    """Makes engines over the same weights, each with caches of its own."""
    parts, no_draft = load(SPEC)

    def made(slots: int = 1, clock: Callable[[], float] = time.perf_counter) -> Engine:
        twins = {"target": parts.target.twin(), "draft_model": parts.draft_model.twin()}
        own = replace(parts, **twins, clock=clock)
        return assemble(replace(SPEC, slots=slots), own, no_draft)

    return made


def by_pass(separate, turns, lanes, conditions: Conditions, engines=lambda made: made):
    clock = Clock.DECODING if conditions.together == 1 else Clock.STEPS
    base = base_request(conditions, TEXT.stop_tokens)
    made = {lane.name: engines(separate(conditions.concurrent)) for lane in lanes}
    runners = {name: EngineRunner(engine, base, clock) for name, engine in made.items()}
    prompts = talks(separate(), turns, conditions)
    return finished(measure(lanes, prompts, conditions, runners, order=Order.STEP))


class TestPassByPass:
    TURNS = ((REPEAT,), ("Repeat this: red blue red blue red",))

    def test_gives_the_tokens_and_counts_of_answer_by_answer(self, separate, engine):
        conditions = replace(SHORT, max_tokens=12, repeats=2)
        lanes = (PLAIN, Lane("suffix", "suffix"), CHAIN)
        raced = by_pass(separate, self.TURNS, lanes, conditions)
        alone = run(engine, *self.TURNS, lanes=lanes, conditions=conditions)
        assert len(raced.samples) == len(alone.samples) == len(lanes) * 2 * 2
        for lane in lanes:
            theirs = {(s.prompt, s.repeat): s.ids for s in alone.of(lane)}
            assert {(s.prompt, s.repeat): s.ids for s in raced.of(lane)} == theirs
            assert all(s.seconds == s.stats.decode_seconds > 0 for s in raced.of(lane))
            assert all(
                s.stats.passes == sum(p.passes for p in s.stats.runs) for s in raced.of(lane)
            )

    def test_prompts_that_wait_for_a_slot_run_together(self, separate):
        """Three prompts in two slots: plain's tokens, and the seconds of all steps that do not read."""
        steps = []

        class Counted(Watched):
            def step(self) -> list[tuple[int, Event]]:
                found = super().step()
                steps.append(len({number for number, _ in found}))
                return found

        turns = [*self.TURNS, self.TURNS[0]]
        queued = replace(SHORT, max_tokens=12, repeats=2, concurrent=2, queued=3)
        raced = by_pass(separate, turns, (PLAIN, CHAIN), queued, Counted)
        assert max(steps) == 2
        alone = by_pass(separate, turns, (PLAIN,), replace(SHORT, max_tokens=12))
        wanted = {s.prompt: s.ids for s in alone.samples}
        assert all(s.ids == wanted[s.prompt] for s in raced.samples)
        runs = runs_of(raced.of(CHAIN))
        assert [(one.group, one.repeat) for one in runs] == [(1, 1), (1, 2)]
        for one in runs:
            own = [s for s in raced.of(CHAIN) if s.repeat == one.repeat]
            assert max(s.stats.decode_seconds for s in own) < one.seconds
            together = sum(s.stats.decode_seconds for s in own)
            assert one.seconds < 1.5 * together  # what is the engine's own is little

    def test_what_reading_takes_is_not_counted(self, separate, monkeypatch):
        """Where a prompt takes a second, by a clock that only its reading moves."""
        feed, clock = TorchTarget.feed, [0.0]

        def slow(self, *read):
            clock[0] += 1.0
            return feed(self, *read)

        monkeypatch.setattr(TorchTarget, "feed", slow)
        monkeypatch.setattr("time.perf_counter", lambda: clock[0])
        both = replace(SHORT, concurrent=2)
        timed = partial(separate, clock=lambda: clock[0])
        raced = by_pass(timed, self.TURNS, (PLAIN, LOOKUP), both)
        assert [s.seconds for s in raced.samples] == pytest.approx([0.0] * 4)
        assert clock[0] > 2


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


class TestFailures:
    def test_a_lane_that_cannot_run(self, engine):
        with pytest.raises(InvalidRequest, match="'magic'"):
            run(engine, ("a",), lanes=(PLAIN, Lane("m", "magic")))

    @pytest.mark.parametrize("order", Order)
    def test_an_answer_that_breaks_off_is_no_measurement(self, separate, order):
        class Broken(Watched):
            def altered(self, request: GenerationRequest, event: Event) -> Event:
                failed = isinstance(event, Done) and request.drafter == "lookup"
                return replace(event, reason=FinishReason.ERROR, error="no") if failed else event

        engine = Broken(separate())
        runners = {"lookup": EngineRunner(engine, base_request(SHORT, TEXT.stop_tokens))}
        work = measure((LOOKUP,), talks(engine, [("a",)], SHORT), SHORT, runners, order=order)
        with pytest.raises(RequestFailed, match="in the lane lookup: no"):
            finished(work)


def test_the_engines_are_left_idle(engine, pair_engine):
    assert not engine.busy
    assert not pair_engine.busy
