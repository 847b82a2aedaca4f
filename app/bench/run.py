"""The measuring loop: every prompt in every lane, lanes taking turns, caches cold each time.

Two things would let a run profit from an earlier one, and are kept from it. Prompts stay warm in
both models: requests ask that nothing be. Drafters learn, some of them whole answers, and would find
their own in every repeat: each lane and repeat has drafters of its own, so what they know comes from
the other prompts of the same repeat, as in a session.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.prompt_files import Turns
from app.bench.verify import Difference, find_difference
from app.errors import RequestFailed
from app.history.task_class import task_class
from app.request import Message
from app.text.chat_text import ChatText
from app.worker.engine_process import Engine
from engine.request import Done, FinishReason, GenerationRequest, ModelFacts, Stats, Tokens


def silent(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gave."""

    prompt: int  # counted from 1, every turn for itself
    ids: tuple[int, ...]
    stats: Stats
    first_seconds: float | None  # from submission to the first token; None without a token


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one lane: one prompt, or several at once.

    ``seconds`` is what the tokens are divided by: the decoding of a prompt that ran alone; for
    several at once the wall time from their submission to the last end.
    """

    lane: str
    group: int  # prompts that ran together, counted from 1
    repeat: int  # counted from 1
    answers: tuple[Answer, ...]
    seconds: float

    @property
    def emitted(self) -> int:
        """Tokens of all answers."""
        return sum(len(answer.ids) for answer in self.answers)

    @property
    def rate(self) -> float:
        """Emitted tokens per second."""
        return self.emitted / self.seconds


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything that ran, in the order in which it ran."""

    facts: ModelFacts
    lanes: tuple[Lane, ...]
    conditions: Conditions
    samples: tuple[Sample, ...]
    differences: tuple[tuple[str, Difference], ...]  # (lane, its first difference from plain)
    skipped: int  # turns that did not fit the context

    @property
    def baseline(self) -> Lane | None:
        """What the others are compared with: the first lane, if it decodes plainly."""
        return self.lanes[0] if self.lanes[0].plain else None

    def of(self, lane: Lane) -> list[Sample]:
        """The samples of one lane."""
        return [sample for sample in self.samples if sample.lane == lane.name]


def measure(
    engine: Engine,
    text: ChatText,
    prompts: Sequence[Turns],
    lanes: Sequence[Lane],
    conditions: Conditions,
    progress: Callable[[str], None] = silent,
) -> Measurement:
    """Run every prompt in every lane, ``repeats`` times; later turns follow the first lane's answers.

    The engine must be idle and built with exactly ``conditions.concurrent`` slots; it may be
    measured again. With plain decoding as the first lane the others are compared with it; without it
    only counts and rates are told.
    Raises InvalidRequest for a lane that cannot run with this model, RequestFailed when one breaks.
    """
    loop = _Loop(engine, text, tuple(lanes), conditions, progress)
    for start in range(0, len(prompts), conditions.together):
        loop.converse(prompts[start : start + conditions.together])
    return Measurement(
        facts=engine.facts,
        lanes=loop.lanes,
        conditions=conditions,
        samples=tuple(loop.samples),
        differences=tuple(loop.differences.items()),
        skipped=loop.skipped,
    )


@dataclass(frozen=True, slots=True)
class _Prompt:
    number: int
    ids: tuple[int, ...]
    task: str


@dataclass
class _Talk:
    """One conversation on its way."""

    turns: Turns
    messages: list[Message] = field(default_factory=list)
    said: int = 0  # turns of the person so far

    @property
    def open(self) -> bool:
        return self.said < len(self.turns)


@dataclass
class _Loop:
    """What has been measured so far."""

    engine: Engine
    text: ChatText
    lanes: tuple[Lane, ...]
    conditions: Conditions
    progress: Callable[[str], None]
    samples: list[Sample] = field(default_factory=list)
    differences: dict[str, Difference] = field(default_factory=dict)
    skipped: int = 0
    prompts: int = 0
    groups: int = 0
    rounds: int = 0
    state: str = field(default_factory=token_hex)  # no other measurement has these drafters

    def converse(self, conversations: Sequence[Turns]) -> None:
        """Some conversations at once, turn after turn."""
        talks = [_Talk(turns) for turns in conversations]
        while ready := [(talk, p) for talk in talks if talk.open and (p := self._say(talk))]:
            first = self._measure([prompt for _, prompt in ready])
            for (talk, _), answer in zip(ready, first.answers, strict=True):
                talk.messages.append(Message("assistant", self.text.decode(answer.ids)))

    def _say(self, talk: _Talk) -> _Prompt | None:
        """The next turn's prompt; None, and the end of the conversation, where it does not fit."""
        talk.messages.append(Message("user", talk.turns[talk.said]))
        ids = self.text.encode_chat(talk.messages)
        if len(ids) >= self.engine.facts.context:
            self.skipped += len(talk.turns) - talk.said
            talk.said = len(talk.turns)
            return None
        talk.said += 1
        self.prompts += 1
        return _Prompt(self.prompts, ids, task_class(talk.messages))

    def _measure(self, prompts: list[_Prompt]) -> Sample:
        """All repeats of one group in all lanes; returns the first lane's first sample."""
        self.groups += 1
        if self.conditions.warm_up and self.groups == 1:
            self._round(prompts, 0)
        rounds = [self._round(prompts, n + 1) for n in range(self.conditions.repeats)]
        for samples in rounds:
            self.samples += samples.values()
            self._compare(prompts, samples)
        return rounds[0][self.lanes[0].name]

    def _round(self, prompts: list[_Prompt], repeat: int) -> dict[str, Sample]:
        """Every lane once; who begins changes from round to round."""
        start = self.rounds % len(self.lanes)
        self.rounds += 1
        samples = {}
        for lane in (*self.lanes[start:], *self.lanes[:start]):
            what = f"repeat {repeat}" if repeat else "warm-up"
            self.progress(f"prompt {prompts[-1].number}, {what}: {lane.name}")
            samples[lane.name] = self._run(lane, prompts, repeat)
        return samples

    def _run(self, lane: Lane, prompts: list[_Prompt], repeat: int) -> Sample:
        requests = [self._request(lane, repeat, prompt) for prompt in prompts]
        self._touch(requests[0])  # builds its drafters before the clock starts
        started = time.perf_counter()
        ends = _drained(self.engine, requests, lane.name)
        wall = time.perf_counter() - started
        warm = max(end.done.stats.cached_tokens for end in ends)
        assert warm == 0, f"{warm} prompt tokens were cached"
        answers = tuple(_answer(p, end, started) for p, end in zip(prompts, ends, strict=True))
        alone = self.conditions.together == 1
        seconds = answers[0].stats.decode_seconds if alone else wall
        return Sample(lane.name, self.groups, repeat, answers, seconds)

    def _request(self, lane: Lane, repeat: int, prompt: _Prompt) -> GenerationRequest:
        request = GenerationRequest(
            prompt=prompt.ids,
            max_tokens=self.conditions.max_tokens,
            sampling=self.conditions.sampling,
            stop_tokens=self.text.stop_tokens,
            task=prompt.task,
            cold=True,
        )
        state = f"{self.state} {lane.name} {repeat}"
        return replace(lane.asks(request), drafter_state=state)

    def _touch(self, request: GenerationRequest) -> int:
        """Have the engine take a request and drop it unread; returns its number."""
        number = self.engine.submit(request)
        self.engine.cancel(number)
        while self.engine.busy:
            self.engine.step()
        return number

    def _compare(self, prompts: list[_Prompt], samples: dict[str, Sample]) -> None:
        """Note each lane's first difference from plain, with the gap where it happened."""
        baseline = self.lanes[0]
        if not (baseline.plain and self.conditions.comparable):
            return
        for lane in self.lanes[1:]:
            found = _difference(samples[baseline.name], samples[lane.name])
            if found is not None and lane.name not in self.differences:
                margins = self._margins(prompts, found.prompt)
                gap = margins[found.token] if found.token < len(margins) else None
                self.differences[lane.name] = replace(found, gap=gap)

    def _margins(self, prompts: list[_Prompt], number: int) -> tuple[float, ...]:
        """Plain decoding once more, now telling its gaps: that would have cost timed runs time."""
        plain = [self._request(self.lanes[0], 0, prompt) for prompt in prompts]
        requests = [replace(request, margins=True) for request in plain]
        ends = _drained(self.engine, requests, self.lanes[0].name)
        return next(
            tuple(end.margins) for p, end in zip(prompts, ends, strict=True) if p.number == number
        )


@dataclass
class Running:
    """What has come of one request."""

    ids: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    first: float | None = None  # clock at the first token
    end: Done | None = None

    def take(self, event: Tokens | Done, lane: str) -> None:
        """Raises RequestFailed, with the lane's name, when the request ended in an error."""
        if isinstance(event, Tokens):
            self.first = self.first or time.perf_counter()
            self.ids += event.ids
            self.margins += event.margins
        elif event.reason is FinishReason.ERROR:
            raise RequestFailed(f"in the lane {lane}: {event.error}")
        else:
            self.end = event

    @property
    def done(self) -> Done:
        """How it ended."""
        assert self.end is not None  # the engine is idle, and Done comes exactly once
        return self.end


def _drained(engine: Engine, requests: Sequence[GenerationRequest], lane: str) -> list[Running]:
    """Submit all and step until the engine is idle."""
    running = {engine.submit(request): Running() for request in requests}
    while engine.busy:
        for number, event in engine.step():
            running[number].take(event, lane)
    return list(running.values())


def _answer(prompt: _Prompt, end: Running, started: float) -> Answer:
    first = None if end.first is None else end.first - started
    return Answer(prompt.number, tuple(end.ids), end.done.stats, first)


def _difference(plain: Sample, other: Sample) -> Difference | None:
    pairs = zip(plain.answers, other.answers, strict=True)
    found = (find_difference(ours.prompt, ours.ids, theirs.ids, ()) for ours, theirs in pairs)
    return next((difference for difference in found if difference is not None), None)
