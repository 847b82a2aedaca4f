"""The loop over the real engine: order of lanes, cold caches, turns, what differs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.run import Measurement, measure
from app.errors import RequestFailed
from app.request import Message
from app.text.chat_text import ChatText
from engine.build import build
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
    """The real engine; tells what it was asked, and may alter what it says."""

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
        return [(n, self.said(self.numbers[n], e) if n in self.numbers else e) for n, e in found]

    def said(self, request: GenerationRequest, event: Event) -> Event:
        return event


class Mistaken(Watched):
    """The drafter lookup gets the third token wrong, in every answer but the first."""

    def said(self, request: GenerationRequest, event: Event) -> Event:
        wrong = request.drafter == "lookup" and request.prompt != self.requests[0].prompt
        if not (wrong and isinstance(event, Tokens) and self.third(request)):
            return event
        return replace(event, ids=(4000, *event.ids[1:]))

    def third(self, request: GenerationRequest) -> bool:
        self.seen = getattr(self, "seen", 0) + 1
        return self.seen == 3


def run(engine, *turns: tuple[str, ...], lanes=(PLAIN, LOOKUP), conditions=SHORT) -> Measurement:
    return measure(engine, TEXT, turns, lanes, conditions)


class TestOrder:
    def test_lanes_take_turns_at_being_first(self, engine: Engine) -> None:
        lanes = (PLAIN, LOOKUP, CHAIN)
        conditions = replace(SHORT, repeats=2, max_tokens=2)
        found = run(engine, ("a",), ("b",), lanes=lanes, conditions=conditions)
        order = [sample.lane for sample in found.samples]
        assert order[:3] == ["plain", "lookup", "chain"]
        assert order[3:6] == ["lookup", "chain", "plain"]
        assert order[6:9] == ["chain", "plain", "lookup"]
        assert [(s.group, s.repeat) for s in found.samples[::3]] == [(1, 1), (1, 2), (2, 1), (2, 2)]

    def test_one_round_of_all_lanes_on_the_first_prompt_is_dropped(self, engine: Engine) -> None:
        watched = Watched(engine)
        warm = replace(SHORT, warm_up=True, max_tokens=2)
        found = run(watched, ("a",), ("b",), conditions=warm)
        assert len(found.samples) == 4
        assert len(watched.requests) == 6
        first = TEXT.encode_chat([Message("user", "a")])
        assert [request.prompt == first for request in watched.requests] == [True] * 4 + [False] * 2

    def test_progress_tells_prompt_repeat_and_lane(self, engine: Engine) -> None:
        told: list[str] = []
        conditions = replace(SHORT, warm_up=True, max_tokens=2)
        measure(engine, TEXT, [("a",)], (PLAIN, LOOKUP), conditions, told.append)
        assert told == [
            "prompt 1, warm-up: plain",
            "prompt 1, warm-up: lookup",
            "prompt 1, repeat 1: lookup",
            "prompt 1, repeat 1: plain",
        ]


class TestCaches:
    @pytest.mark.parametrize("at_once", [1, 2])
    def test_are_cold_for_every_run_in_both_models(self, at_once: int) -> None:
        """Every lane and repeat reads every prompt, wherever it may still lie from the one before."""
        engine = build(replace(SPEC, slots=2))
        read = {"target": 0, "draft": 0}

        def count(name: str, model: TorchTarget) -> None:
            feed, grow = model.feed, model.grow

            def fed(slot: int, tokens: Sequence[int], trace: int = 0) -> object:
                read[name] += len(tokens)
                return feed(slot, tokens, trace)

            def grown(batch: Sequence[Rows]) -> object:
                read[name] += sum(len(rows.tokens) for rows in batch)
                return grow(batch)

            model.feed, model.grow = fed, grown  # type: ignore[assignment, method-assign]

        count("target", engine.components.target)
        count("draft", engine.components.draft_model)
        turns = [(REPEAT,), (f"Again. {REPEAT}",)][:at_once]
        conditions = replace(SHORT, repeats=2, concurrent=at_once)
        lanes = (PLAIN, CHAIN, Lane("again", "chain"))
        found = run(engine, *turns, lanes=lanes, conditions=conditions)
        assert {a.stats.cached_tokens for s in found.samples for a in s.answers} == {0}
        prompts = [TEXT.encode_chat([Message("user", said)]) for (said,) in turns]
        tokens = sum(len(prompt) - 1 for prompt in prompts)
        assert read["target"] >= 2 * len(lanes) * tokens
        assert read["draft"] >= 2 * 2 * tokens


class TestLearning:
    """A repeat must not find the answer that an earlier run of the same prompt gave."""

    LANES = (PLAIN, Lane("suffix", "suffix", "fixed"), Lane("again", "suffix", "fixed", depth=9))

    def drafts(self, found: Measurement) -> set[tuple[int, int]]:
        stats = [s.answers[0].stats for s in found.samples if s.lane != "plain"]
        return {(each.drafted, each.accepted) for each in stats}

    def test_starts_anew_with_every_lane_repeat_and_measurement(self, engine: Engine) -> None:
        asked = replace(SHORT, max_tokens=20, repeats=3, warm_up=True)
        for _ in range(2):
            found = run(engine, ("Hello",), lanes=self.LANES, conditions=asked)
            [(_, accepted)] = self.drafts(found)
            assert accepted <= 2, "what the answer itself repeats"

    def test_goes_on_from_prompt_to_prompt(self, engine: Engine) -> None:
        """The same prompt twice in a file is the user's wish: the second finds the first."""
        asked = replace(SHORT, max_tokens=20, repeats=2)
        found = run(engine, ("Hello",), ("Hello",), lanes=self.LANES[:2], conditions=asked)
        accepted = [s.answers[0].stats.accepted for s in found.of(self.LANES[1])]
        assert max(accepted[:2]) <= 2
        assert min(accepted[2:]) > 5


class TestMeasure:
    def test_what_a_sample_holds(self, engine: Engine) -> None:
        found = run(engine, (REPEAT,), lanes=(PLAIN, CHAIN))
        plain, chain = found.samples
        [answer] = plain.answers
        assert (plain.lane, plain.emitted, answer.stats.passes) == ("plain", 6, 6)
        assert plain.seconds == answer.stats.decode_seconds
        assert plain.rate == 6 / plain.seconds
        assert answer.stats.prompt_seconds < answer.first_seconds
        assert answer.first_seconds < answer.stats.prompt_seconds + plain.seconds
        assert chain.answers[0].ids == answer.ids
        assert found.baseline == PLAIN
        assert found.differences == ()

    def test_later_turns_follow_plains_answers_in_every_lane(self, engine: Engine) -> None:
        watched = Watched(engine)
        found = run(watched, ("Hello", "Thank you"), conditions=replace(SHORT, max_tokens=20))
        said = TEXT.decode(found.of(PLAIN)[0].answers[0].ids)
        messages = [Message("user", "Hello"), Message("assistant", said), Message("user", "Thank you")]  # fmt: skip
        second = TEXT.encode_chat(messages)
        assert said
        assert [request.prompt == second for request in watched.requests] == [
            False,
            False,
            True,
            True,
        ]
        assert [s.answers[0].prompt for s in found.samples] == [1, 1, 2, 2]

    def test_turns_past_the_context_are_skipped_with_what_follows(self, engine: Engine) -> None:
        found = run(engine, ("word " * 5000, "b"), ("c",))
        assert found.skipped == 2
        assert {s.answers[0].prompt for s in found.samples} == {1}

    def test_several_prompts_run_at_once(self, pair_engine: Engine) -> None:
        both = replace(SHORT, concurrent=2)
        found = run(pair_engine, (REPEAT,), ("Hello",), ("Who are you?", "b"), conditions=both)
        sizes = [len(sample.answers) for sample in found.of(PLAIN)]
        assert sizes == [2, 1, 1]
        first = found.samples[0]
        assert first.emitted == sum(len(answer.ids) for answer in first.answers)
        assert first.seconds > max(a.stats.decode_seconds for a in first.answers)
        assert found.differences == ()

    def test_tokens_are_drawn_afresh_without_a_seed_and_kept_with_one(self, engine: Engine) -> None:
        hot = replace(SHORT, sampling=SamplingParams(3.0), repeats=2)
        fresh = [s.answers[0].ids for s in run(engine, (REPEAT,), lanes=(PLAIN,), conditions=hot).samples]  # fmt: skip
        assert fresh[0] != fresh[1]
        seeded = replace(hot, sampling=SamplingParams(3.0, seed=5))
        again = run(engine, (REPEAT,), lanes=(PLAIN, CHAIN), conditions=seeded)
        assert len({s.answers[0].ids for s in again.samples}) == 1
        assert again.differences == ()

    def test_without_plain_the_first_lane_is_followed_and_nothing_compared(
        self, engine: Engine
    ) -> None:
        found = run(engine, ("Hello", "b"), lanes=(LOOKUP, CHAIN))
        assert found.baseline is None
        assert len(found.samples) == 4


class TestDifferences:
    def test_the_first_is_told_with_the_gap_that_plain_had_there(self, engine: Engine) -> None:
        """The gap costs an extra plain run, and only where something differs."""
        lookup = Lane("lookup", "lookup", depth=0)  # one token a pass
        watched = Mistaken(engine)
        found = run(watched, ("Hello",), ("Who are you?",), lanes=(PLAIN, lookup))
        [(lane, difference)] = found.differences
        plain = found.of(PLAIN)[1].answers[0]
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

    def test_draws_without_a_seed_are_not_compared(self, engine: Engine) -> None:
        hot = replace(SHORT, sampling=SamplingParams(3.0))
        watched = Watched(engine)
        assert run(watched, (REPEAT,), conditions=hot).differences == ()
        assert not any(request.margins for request in watched.requests)


class TestFailures:
    def test_a_lane_that_cannot_run(self, engine: Engine) -> None:
        with pytest.raises(InvalidRequest, match="unknown drafter 'magic'"):
            run(engine, ("a",), lanes=(PLAIN, Lane("m", "magic")))

    def test_an_answer_that_breaks_off_is_no_measurement(self, engine: Engine) -> None:
        class Broken(Watched):
            def said(self, request: GenerationRequest, event: Event) -> Event:
                failed = isinstance(event, Done) and request.drafter == "lookup"
                return replace(event, reason=FinishReason.ERROR, error="no") if failed else event

        with pytest.raises(RequestFailed, match="in the lane lookup: no"):
            run(Broken(engine), ("a",))


def test_the_module_level_engine_is_left_idle(engine: Engine, pair_engine: Engine) -> None:
    assert not engine.busy
    assert not pair_engine.busy
