"""Races: lanes take turns at every pass, each on an engine of its own.

What disturbs a machine lasts for parts of a second and longer: where lanes take turns at whole
answers, it meets some of them. Passes of one prompt meet it alike.
"""

import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.run import Answer, Measurement, Sample, silent
from app.errors import RequestFailed
from app.prompts import Turns
from app.task_class import task_class
from app.text import ChatText
from app.turn import Message
from engine.engine import Engine
from engine.request import Done, FinishReason, GenerationRequest, Tokens

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
    """``measure`` of first turns, one request at a time, with a turn for every pass.

    ``engine`` makes one that has learnt nothing and shares no cache: every lane has its own in each
    repeat, so that it knows the earlier prompts of this repeat, as in a session. Raises RequestFailed.
    """
    race = _Race(engine, text, lanes, conditions)
    if conditions.warm_up:
        race.run(1, prompts[0])
    samples: list[Sample] = []
    gc.collect()
    gc.freeze()  # as the engine's process does once a model is loaded
    try:
        for repeat in range(1, conditions.repeats + 1):
            if repeat > 1 or conditions.warm_up:  # these engines have learnt something
                race = _Race(engine, text, lanes, conditions)
            for group, turns in enumerate(prompts, 1):
                progress(f"prompt {group} of {len(prompts)}, repeat {repeat}")
                for name, answer in race.run(group, turns).items():
                    seconds = answer.stats.decode_seconds
                    samples.append(Sample(name, group, repeat, (answer,), seconds))
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

    def run(self, number: int, turns: Turns) -> dict[str, Answer]:
        """One prompt in every lane."""
        messages = [Message("user", turns[0])]
        request = GenerationRequest(
            prompt=self._text.encode_chat(messages),
            max_tokens=self._conditions.max_tokens,
            sampling=self._conditions.sampling,
            stop_tokens=self._text.stop_tokens,
            task=task_class(messages),
        )
        said: dict[str, list[int]] = {name: [] for name in self._lanes}
        steps = {
            name: _steps(engine, lane.asks(request)) for name, (lane, engine) in self._lanes.items()
        }
        ends = {}
        for name, event in take_turns(steps):
            if isinstance(event, Tokens):
                said[name] += event.ids
            elif isinstance(event, Done):
                if event.reason is FinishReason.ERROR:
                    raise RequestFailed(f"in the lane {name}: {event.error}")
                ends[name] = event.stats
        return {name: Answer(number, tuple(said[name]), ends[name], None) for name in ends}


def _steps(engine: Engine, request: GenerationRequest) -> Iterator[Tokens | Done | None]:
    """What every pass gives; None where the prompt is being read."""
    engine.submit(request)
    while engine.busy:
        found = engine.step()
        yield from (event for _, event in found)
        if not found:
            yield None
