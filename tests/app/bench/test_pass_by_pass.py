"""Lanes that take turns pass by pass, and what breaks off."""

from dataclasses import replace
from functools import partial

import pytest

from app.bench.lanes import Lane
from app.bench.measure import (
    Order,
    finished,
    measure,
)
from app.bench.options import Conditions
from app.bench.runners import Clock, EngineRunner, base_request
from app.bench.summary import runs_of
from app.errors import RequestFailed
from engine.errors import InvalidRequest
from engine.models.own.target import TorchTarget
from engine.request import (
    Done,
    Event,
    FinishReason,
    GenerationRequest,
)
from tests.app.bench.measuring import CHAIN, LOOKUP, PLAIN, REPEAT, SHORT, TEXT, Watched, run, talks


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
