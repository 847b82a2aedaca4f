"""The measuring loop: every prompt in every lane, lanes taking turns, one record for every answer.

A run must not profit from an earlier one. So requests ask for cold caches, and each lane has drafters
of its own in each repeat: what they know comes from the earlier prompts of the same repeat, as in a
session.
"""

import random
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol, TypeVar

from typing_extensions import override

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.prompt_files import Turns
from app.history.task_class import task_class
from app.request import Message
from app.text.chat_text import ChatText
from engine.request import Stats
from engine.speculation.common_prefix import common_prefix

StepT = TypeVar("StepT")
ResultT = TypeVar("ResultT")


class Order(Enum):
    """When it is the next lane's turn."""

    ANSWER = "answer"  # a lane answers without a break, as for a person
    STEP = "step"  # after every pass: what disturbs a machine for a second disturbs all lanes alike


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as messages, as token ids for the first lane's model, or both."""

    number: int  # counted from 1; every turn of a conversation counts
    messages: tuple[Message, ...] = ()
    ids: tuple[int, ...] = ()
    task: str = ""  # of ``task_class``


@dataclass(frozen=True, slots=True)
class Turn:
    """One lane's turn: the prompts that it answers at once."""

    lane: Lane
    prompts: tuple[Prompt, ...]
    group: int  # of prompts, counted from 1
    repeat: int  # counted from 1; 0 is the warm-up
    margins: bool = False  # also report how close each choice was


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass of the model added to an answer."""

    seconds: float  # from the request to its arrival
    tokens: int
    text: str = ""
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of one lane.

    ``seconds`` is the decoding of an answer that ran alone. Answers that ran together have the same
    ``seconds``: those of the whole group.
    """

    lane: str
    prompt: int
    group: int
    repeat: int
    ids: tuple[int, ...]
    stats: Stats
    seconds: float
    timed: int  # tokens that ``seconds`` were spent on
    first_seconds: float | None = None  # from the request to the first token; None without one
    margins: tuple[float, ...] = ()  # plain's largest logit less the second, where asked for
    passes: tuple[Pass, ...] = ()  # only where somebody watches

    @property
    def rate(self) -> float:
        """Tokens per second of an answer that ran alone; 0 when nothing was timed."""
        return self.timed / self.seconds if self.seconds > 0 else 0.0


RunStep = Pass | Sample | None  # None: the run begins, perhaps again


class Runner(Protocol):
    """Answers prompts: an engine in this process, one in another process, another program."""

    def run(self, turn: Turn) -> AsyncGenerator[RunStep, None]:
        """None, every pass, and last a sample for each prompt.

        Raises InvalidRequest for a lane that cannot run with this model, RequestFailed when one breaks.
        """
        ...


class Watcher:
    """Follows a measurement; does nothing by itself."""

    def begin(self, turn: Turn) -> None:
        """A lane's turn begins; again where it was interrupted."""

    def add(self, turn: Turn, one: Pass) -> None:
        """A pass ended."""

    def end(self, sample: Sample) -> None:
        """An answer ended."""

    def update(self, measurement: "Measurement") -> None:
        """Every lane has answered a group of prompts once more."""


class Progress(Watcher):
    """Says each turn in words."""

    def __init__(self, show: Callable[[str], None]) -> None:
        """``show`` gets a sentence's part whenever a turn begins."""
        self._show = show

    @override
    def begin(self, turn: Turn) -> None:
        what = f"repeat {turn.repeat}" if turn.repeat else "warm-up"
        self._show(f"prompt {turn.prompts[-1].number}, {what}: {turn.lane.name}")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a drafted answer leaves the plain one; None is the end of the answer."""

    prompt: int  # counted from 1
    token: int  # counted from 0
    plain: int | None
    drafted: int | None
    gap: float | None  # plain's largest logit less the second there: how close the tie was
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything that ran, in the order in which it ran."""

    lanes: tuple[Lane, ...]
    conditions: Conditions
    samples: tuple[Sample, ...]
    differences: Mapping[str, Difference] = field(default_factory=dict)  # by lane, the first one
    skipped: int = 0  # turns that did not fit the context

    @property
    def baseline(self) -> Lane | None:
        """What the others are compared with: the first lane, if it decodes plainly."""
        return self.lanes[0] if self.lanes[0].plain else None

    def of(self, lane: Lane) -> list[Sample]:
        """The samples of one lane."""
        return [sample for sample in self.samples if sample.lane == lane.name]


class Prompts:
    """Groups of prompts; those of a group run at once."""

    def __init__(self, groups: Iterable[Sequence[Prompt]]) -> None:
        """Take them as they are."""
        self._groups = groups
        self.skipped = 0  # turns that did not fit the context

    def __iter__(self) -> Iterator[Sequence[Prompt]]:
        """Group after group."""
        return iter(self._groups)

    def answered(self, samples: Sequence[Sample]) -> None:
        """The first lane's first answers to the latest group."""


class Conversations(Prompts):
    """Turns of people, some conversations at once; later turns follow the first lane's answers."""

    def __init__(
        self, text: ChatText, context: int, turns: Sequence[Turns], together: int = 1
    ) -> None:
        """``context`` is the model's, in tokens; ``together`` conversations run at once."""
        super().__init__(())
        self._text, self._context = text, context
        self._turns, self._together = turns, together
        self._numbers = 0
        self._answers: list[tuple[int, ...]] = []

    @override
    def __iter__(self) -> Iterator[Sequence[Prompt]]:
        for start in range(0, len(self._turns), self._together):
            yield from self._talk(self._turns[start : start + self._together])

    @override
    def answered(self, samples: Sequence[Sample]) -> None:
        self._answers = [sample.ids for sample in samples]

    def _talk(self, conversations: Sequence[Turns]) -> Iterator[Sequence[Prompt]]:
        """Turn after turn; a conversation ends where a turn does not fit the context."""
        open_ones: list[tuple[Turns, list[Message]]] = [(turns, []) for turns in conversations]
        for place in range(max(map(len, conversations))):
            group, asked = [], []
            for turns, messages in open_ones:
                if place >= len(turns):
                    continue
                messages.append(Message("user", turns[place]))
                ids = self._text.encode_chat(messages)
                if len(ids) >= self._context:
                    self.skipped += len(turns) - place
                    continue
                self._numbers += 1
                group.append(
                    Prompt(self._numbers, tuple(messages), tuple(ids), task_class(messages))
                )
                asked.append((turns, messages))
            if not group:
                return
            yield group
            for (_, messages), answer in zip(asked, self._answers, strict=True):
                messages.append(Message("assistant", self._text.decode(answer)))
            open_ones = asked


async def measure(
    lanes: Sequence[Lane],
    prompts: Prompts,
    conditions: Conditions,
    runners: Mapping[str, Runner],
    watcher: Watcher | None = None,
    order: Order = Order.ANSWER,
) -> Measurement:
    """Run every prompt in every lane, ``repeats`` times, each lane with the runner of its name.

    With plain decoding as the first lane the others are compared with it, token by token.
    Raises what the runners raise.
    """
    loop = _Loop(tuple(lanes), prompts, conditions, runners, watcher or Watcher(), order)
    for group in prompts:
        prompts.answered(await loop.measure(tuple(group)))
    return loop.measurement()


def finished(work: Coroutine[None, None, ResultT]) -> ResultT:
    """The result of work that never waits, as where all runners are engines of this process."""
    try:
        work.send(None)
    except StopIteration as end:
        result: ResultT = end.value
        return result
    raise AssertionError("an engine of this process never waits")


async def take_turns(
    lanes: Mapping[str, AsyncGenerator[StepT, None]],
) -> AsyncGenerator[tuple[str, StepT], None]:
    """Every lane makes one step, then each the next one, in an order that changes, until all end.

    The next pass finds what a pass leaves in caches and in the processor's clock: with one order the
    same lane would always come after the widest passes.
    """
    running = dict(lanes)
    order = random.Random(0)
    try:
        while running:
            for lane in order.sample(list(running), len(running)):
                try:
                    step = await anext(running[lane])
                except StopAsyncIteration:
                    del running[lane]
                else:
                    yield lane, step
    finally:
        for run in running.values():
            await run.aclose()


def find_difference(plain: Sample, other: Sample) -> Difference | None:
    """The first token that is not plain's; its gap is not known yet."""
    place = common_prefix(plain.ids, other.ids)
    ours, theirs = (ids[place] if place < len(ids) else None for ids in (plain.ids, other.ids))
    if ours is theirs is None:
        return None
    return Difference(plain.prompt, place, ours, theirs, None, other.repeat)


Round = dict[str, list[Sample]]  # by lane


@dataclass
class _Loop:
    """What has been measured so far."""

    lanes: tuple[Lane, ...]
    prompts: Prompts
    conditions: Conditions
    runners: Mapping[str, Runner]
    watcher: Watcher
    order: Order
    samples: list[Sample] = field(default_factory=list)
    differences: dict[str, Difference] = field(default_factory=dict)
    groups: int = 0
    rounds: int = 0

    def measurement(self) -> Measurement:
        """All of it."""
        return Measurement(
            self.lanes,
            self.conditions,
            tuple(self.samples),
            dict(self.differences),
            self.prompts.skipped,
        )

    async def measure(self, prompts: tuple[Prompt, ...]) -> list[Sample]:
        """All repeats of one group in all lanes; returns the first lane's first answers."""
        self.groups += 1
        if self.conditions.warm_up and self.groups == 1:
            await self._round(prompts, 0)
        first: list[Sample] = []
        for repeat in range(1, self.conditions.repeats + 1):
            found = await self._round(prompts, repeat)
            self.samples += (sample for samples in found.values() for sample in samples)
            await self._compare(prompts, found)
            first = first or found[self.lanes[0].name]
            self.watcher.update(self.measurement())
        return first

    async def _round(self, prompts: tuple[Prompt, ...], repeat: int) -> Round:
        """Every lane once; which one begins changes from round to round."""
        start = self.rounds % len(self.lanes)
        self.rounds += 1
        lanes = (*self.lanes[start:], *self.lanes[:start])
        turns = {lane.name: Turn(lane, prompts, self.groups, repeat) for lane in lanes}
        found: Round = {}
        for batch in [turns] if self.order is Order.STEP else [{n: turns[n]} for n in turns]:
            runs = {name: self.runners[name].run(turn) for name, turn in batch.items()}
            async for name, step in take_turns(runs):
                match step:
                    case None:
                        found[name] = []
                        self.watcher.begin(turns[name])
                    case Sample():
                        found[name].append(step)
                        self.watcher.end(step)
                    case _:
                        self.watcher.add(turns[name], step)
        return found

    async def _compare(self, prompts: tuple[Prompt, ...], found: Round) -> None:
        """Note each lane's first difference from plain, with the gap where it happened."""
        baseline = self.lanes[0]
        if not (baseline.plain and self.conditions.comparable):
            return
        for lane in self.lanes[1:]:
            pairs = zip(found[baseline.name], found[lane.name], strict=True)
            first = next((one for pair in pairs if (one := find_difference(*pair))), None)
            if first is not None and lane.name not in self.differences:
                margins = await self._margins(prompts, first.prompt)
                gap = margins[first.token] if first.token < len(margins) else None
                self.differences[lane.name] = replace(first, gap=gap)

    async def _margins(self, prompts: tuple[Prompt, ...], number: int) -> tuple[float, ...]:
        """Plain decoding once more, with its gaps: in a timed run they would take time."""
        plain = self.lanes[0]
        turn = Turn(plain, prompts, self.groups, 0, margins=True)
        found = [s async for s in self.runners[plain.name].run(turn) if isinstance(s, Sample)]
        return next(sample.margins for sample in found if sample.prompt == number)
