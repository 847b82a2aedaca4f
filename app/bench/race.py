"""Races: lanes take turns at every pass, each on an engine of its own.

What disturbs a machine lasts for parts of a second and longer: where lanes take turns at whole
answers, it meets some of them. Passes of one prompt meet it alike.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.prompt_files import Turns
from app.bench.run import Answer, Measurement, Running, Sample, silent
from app.history.task_class import task_class
from app.request import Message
from app.text.chat_text import ChatText
from engine.engine import Engine
from engine.request import Done, GenerationRequest, Tokens

StepT = TypeVar("StepT")


def take_turns(lanes: Mapping[str, Iterator[StepT]]) -> Iterator[tuple[str, StepT]]:
    """Every lane makes one step, then each the next one, in ever another order, until all end.

    What a pass leaves behind, in caches and in the processor's clock, the next one finds: with one
    order it was always the same lane that came after the widest passes.
    """
    running = dict(lanes)
    order = random.Random(0)
    while running:
        for lane in order.sample(list(running), len(running)):
            try:
                step = next(running[lane])
            except StopIteration:
                del running[lane]
            else:
                yield lane, step


def measure_race(
    engine: Callable[[], Engine],
    text: ChatText,
    prompts: Sequence[Turns],
    lanes: Sequence[Lane],
    conditions: Conditions,
    progress: Callable[[str], None] = silent,
) -> Measurement:
    """``measure`` of first turns, with a turn for every pass.

    ``engine`` makes one that has learnt nothing and shares no cache, with ``conditions.concurrent``
    slots: every lane has its own in each repeat, so that it knows the earlier prompts of this repeat,
    as in a session. Seconds of several prompts at once are those of their engine's own steps, without
    what reading them took: nobody drafts there. Raises RequestFailed.
    """
    race = _Race(engine, text, lanes, conditions)
    numbered = list(enumerate(prompts, 1))
    together = conditions.together
    groups = [numbered[at : at + together] for at in range(0, len(numbered), together)]
    if conditions.warm_up:
        race.run(groups[0])
    samples: list[Sample] = []
    gc.collect()
    gc.freeze()  # as the engine's process does once a model is loaded
    try:
        for repeat in range(1, conditions.repeats + 1):
            if repeat > 1 or conditions.warm_up:  # these engines have learnt something
                race = _Race(engine, text, lanes, conditions)
            for number, group in enumerate(groups, 1):
                progress(f"prompt {group[-1][0]} of {len(prompts)}, repeat {repeat}")
                for name, (answers, seconds) in race.run(group).items():
                    samples.append(Sample(name, number, repeat, answers, seconds))
    finally:
        gc.unfreeze()
    return Measurement(race.facts, tuple(lanes), conditions, tuple(samples), (), 0)


class _Race:
    """Engines that remember what they were asked."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        text: ChatText,
        lanes: Sequence[Lane],
        conditions: Conditions,
    ) -> None:
        self._lanes = {lane.name: (lane, engine()) for lane in lanes}
        self._text, self._conditions = text, conditions
        self.facts = self._lanes[lanes[0].name][1].facts

    def run(
        self, prompts: Sequence[tuple[int, Turns]]
    ) -> dict[str, tuple[tuple[Answer, ...], float]]:
        """Some numbered prompts, submitted together, in every lane; of each also its seconds."""
        requests = [self._request(turns) for _, turns in prompts]
        running, steps = {}, {}
        for name, (lane, engine) in self._lanes.items():
            asked = {engine.submit(lane.asks(request)): Running() for request in requests}
            running[name], steps[name] = asked, _steps(engine)
        seconds = dict.fromkeys(running, 0.0)
        for name, step in take_turns(steps):
            seconds[name] += step.seconds
            for number, event in step.events:
                running[name][number].take(event, name)
        numbers = [number for number, _ in prompts]
        found = {}
        for name, asked in running.items():
            ends = zip(numbers, asked.values(), strict=True)
            answers = tuple(
                Answer(number, tuple(end.ids), end.done.stats, None) for number, end in ends
            )
            found[name] = answers, self._decoding(seconds[name], answers)
        return found

    def _decoding(self, seconds: float, answers: Sequence[Answer]) -> float:
        """Seconds of all steps without those that read a prompt; of an answer alone, its own."""
        if self._conditions.together == 1:
            return answers[0].stats.decode_seconds
        return seconds - sum(answer.stats.prompt_seconds for answer in answers)

    def _request(self, turns: Turns) -> GenerationRequest:
        messages = [Message("user", turns[0])]
        return GenerationRequest(
            prompt=self._text.encode_chat(messages),
            max_tokens=self._conditions.max_tokens,
            sampling=self._conditions.sampling,
            stop_tokens=self._text.stop_tokens,
            task=task_class(messages),
        )


class _Step(NamedTuple):
    """What one step of an engine gave, and took."""

    events: Sequence[tuple[int, Tokens | Done]]  # with the requests' numbers
    seconds: float


def _steps(engine: Engine) -> Iterator[_Step]:
    """Until the engine is idle."""
    while engine.busy:
        started = time.perf_counter()
        events = engine.step()
        yield _Step(events, time.perf_counter() - started)
