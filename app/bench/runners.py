"""The runner over an engine of this process: the pipe to another one would be measured too."""

import gc
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from app.bench.measure import Pass, Prompt, RunStep, Sample, Turn
from app.bench.options import Conditions
from app.errors import RequestFailed
from engine.request import Done, Event, FinishReason, GenerationRequest, Tokens

if TYPE_CHECKING:
    from engine.engine import Engine


class Clock(Enum):
    """What a sample's seconds are."""

    DECODING = "decoding"  # of the one answer, by the engine's clock
    WALL = "wall"  # from the requests to the last end
    STEPS = "steps"  # of the engine's steps, without reading prompts


def base_request(
    conditions: Conditions, stop_tokens: frozenset[int], *, cold: bool = True
) -> GenerationRequest:
    """What all requests of a measurement have in common; the prompt is to be set."""
    return GenerationRequest(
        (0,), conditions.max_tokens, conditions.sampling, stop_tokens, cold=cold
    )


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Leave what is loaded out of garbage collection, as the engine's process does."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def fresh_name() -> str:
    """A name that no other runner of this engine has."""
    return secrets.token_hex(8)


@dataclass
class EngineRunner:
    """An idle engine of this process; every prompt of a turn runs at once, as far as slots are there.

    ``base`` comes from ``base_request``. Drafters are known by ``name``, lane and repeat.
    """

    engine: "Engine"
    base: GenerationRequest
    clock: Clock = Clock.DECODING
    name: str = field(default_factory=fresh_name)

    async def run(self, turn: Turn) -> AsyncGenerator[RunStep, None]:
        """See ``Runner``; the engine is idle again after it."""
        requests = [self._request(turn, prompt) for prompt in turn.prompts]
        self._build_drafters(requests[0])
        yield None
        answers = {self.engine.submit(request): Answer(turn.lane.name) for request in requests}
        seconds = 0.0
        while self.engine.busy:
            started = time.perf_counter()
            events = self.engine.step()
            seconds += time.perf_counter() - started
            for number, event in events:
                answers[number].take(event, seconds)
            tokens = sum(len(event.ids) for _, event in events if isinstance(event, Tokens))
            yield Pass(seconds, tokens)
        ends = list(answers.values())
        taken = self._seconds(seconds, ends)
        for prompt, end in zip(turn.prompts, ends, strict=True):
            if self.base.cold and end.done.stats.cached_tokens:
                raise AssertionError(f"{end.done.stats.cached_tokens} prompt tokens were cached")
            yield end.sample(turn, prompt, taken, stop=self.clock is Clock.STEPS)

    def _request(self, turn: Turn, prompt: Prompt) -> GenerationRequest:
        asked = replace(self.base, prompt=prompt.ids, task=prompt.task, margins=turn.margins)
        state = f"{self.name} {turn.lane.name} {turn.repeat}"
        return replace(turn.lane.asks(asked), drafter_state=state)

    def _build_drafters(self, request: GenerationRequest) -> None:
        """Before the clock starts: the engine takes a request and drops it unread."""
        self.engine.cancel(self.engine.submit(request))
        while self.engine.busy:
            self.engine.step()

    def _seconds(self, wall: float, ends: "Sequence[Answer]") -> float:
        match self.clock:
            case Clock.DECODING:
                [alone] = ends
                return alone.done.stats.decode_seconds
            case Clock.STEPS:
                return wall - sum(end.done.stats.prompt_seconds for end in ends)
            case Clock.WALL:
                return wall


@dataclass
class Answer:
    """What has come of one request."""

    lane: str
    ids: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    first: float | None = None  # seconds to the first token
    end: Done | None = None

    def take(self, event: Event, seconds: float) -> None:
        """Raises RequestFailed, with the lane's name, when the request ended in an error."""
        if isinstance(event, Tokens):
            self.first = seconds if self.first is None else self.first
            self.ids += event.ids
            self.margins += event.margins
        elif isinstance(event, Done):
            if event.reason is FinishReason.ERROR:
                raise RequestFailed(f"in the lane {self.lane}: {event.error}")
            self.end = event

    @property
    def done(self) -> Done:
        """How it ended."""
        assert self.end is not None  # the engine is idle, and Done comes exactly once
        return self.end

    def sample(self, turn: Turn, prompt: Prompt, seconds: float, *, stop: bool = False) -> Sample:
        """The record; with ``stop`` a stop token counts as one that was decoded."""
        stopped = stop and self.done.reason is FinishReason.STOP
        return Sample(
            lane=self.lane,
            prompt=prompt.number,
            group=turn.group,
            repeat=turn.repeat,
            ids=tuple(self.ids),
            stats=self.done.stats,
            seconds=seconds,
            timed=len(self.ids) + stopped,
            first_seconds=self.first,
            margins=tuple(self.margins),
        )
