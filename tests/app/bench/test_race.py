"""Races: turns at every pass, engines that remember a repeat and nothing else, plain's tokens."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.race import measure_race, take_turns
from app.bench.run import measure
from app.errors import RequestFailed
from app.text.chat_text import ChatText
from engine.build import assemble, build, load
from engine.engine import Engine
from engine.models.own.target import TorchTarget
from engine.request import Done, FinishReason, GenerationRequest, ModelSpec

BUNDLED = Path(__file__).parents[3] / "engine" / "bundled"
SPEC = ModelSpec("pocket", str(BUNDLED / "pocket"), str(BUNDLED / "pocket-draft"), slots=1)
TEXT = ChatText.load(BUNDLED / "pocket")
LANES = (Lane("plain", "none"), Lane("suffix", "suffix"), Lane("chain", "chain"))
PROMPTS = [(f"Repeat this: {words}",) for words in ("a b c a b c a b c", "red blue red blue red")]
TWICE = Conditions(max_tokens=12, repeats=2, warm_up=False)


@pytest.fixture(scope="module")
def engine():
    parts, no_draft = load(SPEC)

    def separate(slots=1):
        own = replace(parts, target=parts.target.twin(), draft_model=parts.draft_model.twin())
        return assemble(replace(SPEC, slots=slots), own, no_draft)

    return separate


def test_every_lane_steps_once_before_any_steps_again():
    lanes = {"a": 5, "b": 5, "c": 2}
    seen = list(take_turns({name: iter(range(steps)) for name, steps in lanes.items()}))
    assert {name: [step for lane, step in seen if lane == name] for name in lanes} == {
        name: list(range(steps)) for name, steps in lanes.items()
    }
    for first in (0, 3):  # both rounds that all three take part in
        assert sorted(step for _, step in seen[first : first + 3]) == [first // 3] * 3
    assert len({tuple(lane for lane, _ in seen[n : n + 2]) for n in range(6, 12, 2)}) == 2
    assert list(take_turns({})) == []


def test_a_race_gives_the_tokens_and_counts_of_a_measurement(engine):
    raced = measure_race(engine, TEXT, PROMPTS, LANES, TWICE)
    alone = measure(build(SPEC), TEXT, PROMPTS, LANES, TWICE)
    assert len(raced.samples) == len(alone.samples) == len(LANES) * len(PROMPTS) * 2
    for lane in LANES:
        theirs = {(s.group, s.repeat): s for s in alone.of(lane)}
        for ours in raced.of(lane):
            [one], [other] = ours.answers, theirs[ours.group, ours.repeat].answers
            assert one.ids == other.ids
            assert one.stats.passes == sum(run.passes for run in one.stats.runs)
            assert ours.seconds == one.stats.decode_seconds > 0
    plain, *_ = raced.of(LANES[0])
    assert plain.answers[0].stats.passes == len(plain.answers[0].ids)


def test_prompts_that_wait_for_a_slot_are_raced_together(engine):
    """Three prompts in two slots: plain's tokens, and the seconds of all steps that do not read."""
    steps = []

    class Counted:
        """The real engine; counts its steps, and how many requests each one served."""

        def __init__(self, whole: Engine) -> None:
            self.whole, self.facts, self.submit = whole, whole.facts, whole.submit

        @property
        def busy(self) -> bool:
            return self.whole.busy

        def step(self):
            found = self.whole.step()
            steps.append(len({number for number, _ in found}))
            return found

    prompts = [*PROMPTS, PROMPTS[0]]
    queued = replace(TWICE, concurrent=2, queued=3)
    raced = measure_race(lambda: Counted(engine(2)), TEXT, prompts, LANES, queued)
    assert max(steps) == 2
    alone = measure_race(engine, TEXT, prompts, LANES[:1], replace(TWICE, repeats=1))
    wanted = {n: s.answers[0].ids for n, s in enumerate(alone.samples, 1)}
    assert [(s.group, s.repeat) for s in raced.of(LANES[1])] == [(1, 1), (1, 2)]
    for sample in raced.samples:
        assert {answer.prompt: answer.ids for answer in sample.answers} == wanted
        longest = max(answer.stats.decode_seconds for answer in sample.answers)
        together = sum(answer.stats.decode_seconds for answer in sample.answers)
        assert longest < sample.seconds
        assert sample.seconds < 1.5 * together  # what is the engine's own is little


def test_what_reading_takes_is_nobodys_time(engine, monkeypatch):
    """Where a prompt takes a second, by a clock that only its reading moves."""
    asked = replace(TWICE, repeats=1, concurrent=2, queued=2)

    def seconds():
        raced = measure_race(lambda: engine(2), TEXT, PROMPTS, LANES[:2], asked)
        return [sample.seconds for sample in raced.samples]

    feed, clock = TorchTarget.feed, [0.0]

    def slow(self, *read):
        clock[0] += 1.0
        return feed(self, *read)

    monkeypatch.setattr(TorchTarget, "feed", slow)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    assert seconds() == pytest.approx([0.0, 0.0])
    assert clock[0] > 2


def test_a_lane_knows_the_earlier_prompts_of_its_own_repeat_only(engine):
    again = [PROMPTS[0], PROMPTS[0]]
    found = measure_race(engine, TEXT, again, LANES, replace(TWICE, warm_up=True)).of(LANES[1])
    passes = {(s.group, s.repeat): s.answers[0].stats.passes for s in found}
    first, second = ([passes[group, repeat] for repeat in (1, 2)] for group in (1, 2))
    # Neither the warm-up nor the first repeat is known: 7 passes each, and 1 of the prompt that is.
    # The seconds that passes take choose the widths, so that one more or less may be seen.
    assert min(first) > 2 * max(second)


def test_a_lane_that_breaks_is_named(engine):
    class Broken:
        """The real engine, but its requests end in an error."""

        def __init__(self, whole: Engine) -> None:
            self.whole, self.facts = whole, whole.facts

        @property
        def busy(self) -> bool:
            return self.whole.busy

        def submit(self, request: GenerationRequest) -> int:
            return self.whole.submit(request)

        def step(self):
            found = self.whole.step()
            return [
                (n, replace(e, reason=FinishReason.ERROR, error="no memory"))
                if isinstance(e, Done)
                else (n, e)
                for n, e in found
            ]

    with pytest.raises(RequestFailed, match="in the lane plain: no memory"):
        measure_race(lambda: Broken(engine()), TEXT, PROMPTS[:1], LANES[:1], TWICE)
