"""A small real engine for tests: counts upwards from the prompt, one pass per step."""

import gc
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from app.worker.engine_process import serve
from app.worker.messages import Ready
from engine.errors import ContextOverflow, InvalidRequest, ModelUnusable
from engine.request import (
    DepthCount,
    Done,
    DrafterRun,
    Event,
    FinishReason,
    GenerationRequest,
    Logprob,
    ModelFacts,
    ModelSpec,
    Stats,
    Tokens,
)
from engine.speculation.common_prefix import common_prefix

CONTEXT, VOCAB = 64, 4096
POISON, SURPRISE, FATAL = 901, 902, 903  # first prompt ids that make the engine fail
CENSUS = 904  # first prompt id of the request that answers how many others are running

Script = Callable[[GenerationRequest], list[int]]


@dataclass(slots=True)
class Running:
    request: GenerationRequest
    emitted: int = 0
    passes: int = 0
    cancelled: bool = False
    unread: int = 1  # steps that reading ahead still takes
    left: list[int] = field(default_factory=list)


def count_up(request: GenerationRequest) -> list[int]:
    """The answer of the fake: the numbers after the last prompt id."""
    last = request.prompt[-1]
    return [(last + 1 + i) % VOCAB for i in range(request.max_tokens)]


class FakeEngine:
    """Emits ``width`` ids per step for every request, in the order that they came."""

    later = None

    def __init__(  # noqa: PLR0913 - a fake with switches
        self,
        spec: ModelSpec,
        script: Script = count_up,
        width: int = 2,
        *,
        context: int = CONTEXT,
        drafters: tuple[str, ...] = ("none", "lookup"),
        pause: float = 0.0,
        reading: int = 1,
    ) -> None:
        """``pause``: seconds of a step. ``reading``: steps that reading ahead takes."""
        refused = (("chain", "it has no draft"),)
        self.facts = ModelFacts(spec.name, context, VOCAB, 2, 10, drafters, refused)
        self.script, self.width = script, width
        self.pause, self.reading = pause, reading
        self._read: tuple[int, ...] = ()  # what was read ahead
        self._running: dict[int, Running] = {}
        self._next = 0

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def submit(self, request: GenerationRequest) -> int:
        self._refuse(request)
        self._next += 1
        census = request.prompt[0] == CENSUS
        left = [len(self._running)] if census else [] if request.ahead else self.script(request)
        self._running[self._next] = Running(request, unread=self.reading, left=left)
        return self._next

    def cancel(self, request_id: int) -> None:
        self._running[request_id].cancelled = True

    def step(self) -> list[tuple[int, Event]]:
        time.sleep(self.pause)
        if any(one.request.prompt[0] == FATAL for one in self._running.values()):
            raise RuntimeError("the fake broke")
        return [(name, event) for name in list(self._running) for event in self._advance(name)]

    def _refuse(self, request: GenerationRequest) -> None:
        if len(request.prompt) >= self.facts.context:
            raise ContextOverflow(len(request.prompt), self.facts.context)
        if request.prompt[0] == POISON:
            raise InvalidRequest("this prompt is poison")
        if request.prompt[0] == SURPRISE:
            raise RuntimeError("a bug in submit")

    def _advance(self, name: int) -> list[Event]:
        one = self._running[name]
        if one.cancelled:
            return [self._done(name, FinishReason.CANCELLED)]
        if one.request.ahead:
            return self._read_on(name, one)
        room = self.facts.context - len(one.request.prompt) - one.emitted
        ids = tuple(one.left[: min(self.width, room)])
        del one.left[: len(ids)]
        one.emitted, one.passes = one.emitted + len(ids), one.passes + 1
        margins = tuple(token / 8 for token in ids) if one.request.margins else ()
        logprobs = (
            () if one.request.logprobs is None else tuple(Logprob(token, -1.0) for token in ids)
        )
        events: list[Event] = (
            [Tokens(ids, len(ids), len(ids) - 1, margins, logprobs)] if ids else []
        )
        if not one.left or one.emitted + len(one.request.prompt) >= self.facts.context:
            ended = len(one.request.prompt) + one.emitted < self.facts.context
            full = one.emitted >= one.request.max_tokens or not ended
            events.append(self._done(name, FinishReason.LENGTH if full else FinishReason.STOP))
        return events

    def _read_on(self, name: int, one: Running) -> list[Event]:
        one.unread -= 1
        if one.unread > 0:
            return []
        self._read = one.request.prompt
        return [self._done(name, FinishReason.LENGTH)]

    def _done(self, name: int, reason: FinishReason) -> Done:
        one = self._running.pop(name)
        told = ", ".join(prior.drafter for prior in one.request.priors) or "nothing"
        run = replace(RUN, emitted=one.emitted, passes=one.passes)
        stats = replace(
            STATS,
            drafter="lookup",
            why=f"{one.request.task}: the fake was told of {told}",
            prompt_tokens=len(one.request.prompt),
            cached_tokens=common_prefix(self._read, one.request.prompt),
            emitted=one.emitted,
            passes=one.passes,
            accepted=one.emitted - one.passes,
            runs=(run,) if one.passes else (),
        )
        return Done(reason, stats)


RUN = DrafterRun(
    drafter="lookup",
    passes=0,
    emitted=0,
    drafted=4,
    accepted=2,
    seconds=0.5,
    plain_seconds=1.0,
    depths=(DepthCount(12, 9), DepthCount(9, 3)),
)
STATS = Stats(
    drafter="none",
    why="the fake always does this",
    prompt_tokens=0,
    cached_tokens=0,
    emitted=0,
    passes=0,
    drafted=4,
    accepted=2,
    depths=(DepthCount(2, 1),),
    prompt_seconds=0.25,
    decode_seconds=0.5,
)


def served(
    build: Callable[[ModelSpec], FakeEngine], connection: Connection, spec: ModelSpec, level: str
) -> None:
    """The main function of a child process with this engine."""
    gc.freeze()  # as in engine_process.main
    serve(connection, spec, build, level)


def repeat(request: GenerationRequest) -> list[int]:
    """What the person said last; of a bare text, its beginning."""
    user, end = 2, 4  # pocket's control tokens
    ids = list(request.prompt)
    if user not in ids:
        return ids[:3][: request.max_tokens]
    last = len(ids) - 1 - ids[::-1].index(user)
    return ids[last + 1 : ids.index(end, last)][: request.max_tokens]


def loop(request: GenerationRequest) -> list[int]:
    """A dozen tokens, again and again."""
    return [600 + place % 12 for place in range(request.max_tokens)]


def mistake(request: GenerationRequest) -> list[int]:
    """Lookup's answers leave plain's at the fourth token."""
    right = [100, 101, 102, 103, 104, 105][: request.max_tokens]
    return [*right[:3], 999, *right[4:]] if request.drafter == "lookup" else right


class Fragile(FakeEngine):
    """Breaks in the second step of every answer."""

    def step(self) -> list[tuple[int, Event]]:
        if any(one.passes for one in self._running.values()):
            raise RuntimeError("the fake broke")
        return super().step()


class Segfaulting(FakeEngine):
    """Ends its process in the middle of an answer, as native code does."""

    def step(self) -> list[tuple[int, Event]]:
        signal.raise_signal(signal.SIGSEGV)
        return []


def build_and_log(spec: ModelSpec) -> FakeEngine:
    logging.getLogger("engine.fake").warning("the cache of %s is small", spec.name)
    logging.getLogger("engine.fake").info("a detail")
    return FakeEngine(spec)


def build_nothing(spec: ModelSpec) -> FakeEngine:
    raise ModelUnusable(f"{spec.folder} has no config.json")


def build_without_end(spec: ModelSpec) -> FakeEngine:
    """Makes the file that it should load when it begins."""
    Path(spec.folder).touch()
    time.sleep(600)
    raise AssertionError("no test waits so long")


# Entries of child processes.


def entry(build: Callable[[ModelSpec], FakeEngine]) -> Callable[[Connection, ModelSpec, str], None]:
    """Of this module, as ``child.AHEAD`` has it: such a process is forked, which takes a third."""
    made = partial(served, build)
    made.__module__ = __name__
    return made


counting = entry(FakeEngine)
endless = entry(partial(FakeEngine, width=1, context=100_000, pause=0.002))
stuck = entry(partial(FakeEngine, script=loop, width=4, context=20_000, pause=0.002))
parrot = entry(partial(FakeEngine, script=repeat, width=1, context=256))
reader = partial(FakeEngine, script=repeat, width=1, context=256, pause=0.002)
slow_reader = entry(partial(reader, reading=300))  # 0.6 seconds
endless_reader = entry(partial(reader, reading=1_000_000))
mistaken = entry(partial(FakeEngine, script=mistake, drafters=("none", "lookup", "specexec")))
fragile = entry(Fragile)
segfaulting = entry(Segfaulting)
talkative = entry(build_and_log)
unusable = entry(build_nothing)
loading_for_ever = entry(build_without_end)


def dying(connection: Connection, spec: ModelSpec, level: str) -> None:
    """Entry: the process ends while it loads, as native code does."""
    os._exit(7)


def loading(connection: Connection, spec: ModelSpec, level: str) -> None:
    """Entry: loads for ever, and hears nothing."""
    signal.pause()


def deaf(connection: Connection, spec: ModelSpec, level: str) -> None:
    """Entry: hangs as soon as it is loaded, and does not end on a signal to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection.send(Ready(FakeEngine(spec).facts))
    while True:
        signal.pause()
