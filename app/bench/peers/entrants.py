"""Who takes part: lanes of the race with their programs, this one among them."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from typing_extensions import override

from app.bench.lanes import PLAIN_LANE, Lane
from app.bench.peers import libraries, llama_server
from app.bench.peers.child import Library
from app.bench.peers.program import Chunk, Program, Question
from app.errors import LaneError, RequestFailed
from app.worker.worker import EngineWorker
from engine.hardware.footprint import LLAMA_CPP
from engine.request import (
    AUTO,
    PLAIN,
    Done,
    FinishReason,
    GenerationRequest,
    ModelFacts,
    ModelSpec,
    Tokens,
)

OWN = "slipstream"
Make = Callable[[], Program]


class Slipstream(Program):
    """This program as the chat runs it: an engine in its own process; its modes are drafters."""

    def __init__(self, spec: ModelSpec) -> None:
        """A model and where it runs, as planned."""
        self._worker = EngineWorker(spec)
        self.facts: ModelFacts | None = None  # once it is loaded

    @property
    @override
    def pid(self) -> int | None:
        return self._worker.pid

    @override
    async def start(self) -> None:
        self.facts = await self._worker.start()

    @override
    async def answer(self, mode: str, question: Question) -> AsyncGenerator[Chunk, None]:
        again = f", {question.attempt} of {hash(question.ids)}" if question.attempt else ""
        request = GenerationRequest(
            question.ids,
            question.max_tokens,
            stop_tokens=question.stop_tokens,
            cold=True,
            drafter=mode,
            drafter_state=f"peers {mode}{again}",
        )
        async for event in self._worker.generate(request):
            if isinstance(event, Tokens):
                yield Chunk(event.ids, event.drafted, event.accepted)
            elif isinstance(event, Done):
                if event.reason is FinishReason.ERROR:
                    raise RequestFailed(f"{mode}: {event.error}")
                yield Chunk((), stopped=event.reason is FinishReason.STOP)

    @override
    async def close(self) -> None:
        await self._worker.close()


@dataclass(frozen=True, slots=True)
class Entrant:
    """One lane; lanes of the same ``make`` share a process."""

    lane: Lane
    mode: str  # as its program calls it
    make: Make
    plain: str  # the lane whose answers these should be


@dataclass(frozen=True, slots=True)
class Places:
    """What the programs read, and where their output goes."""

    spec: ModelSpec
    context: int  # tokens
    ggufs: tuple[Path, ...]  # for programs that read only those
    server: Path | None  # llama-server
    logs: Path  # a folder


def own(make: Make, facts: ModelFacts) -> list[Entrant]:
    """Plain decoding first, auto, then every drafter that the model has."""
    others = [name for name in facts.drafters if name not in (PLAIN, AUTO)]
    names = {PLAIN_LANE: PLAIN} | {name: name for name in (AUTO, *others)}
    return [
        Entrant(Lane(f"{OWN}: {name}", mode), mode, make, f"{OWN}: {PLAIN_LANE}")
        for name, mode in names.items()
    ]


def peers(places: Places) -> list[Entrant]:
    """Every other program that can run the model here."""
    found: list[Entrant] = []
    for file in places.ggufs:
        suffix = f" {file.stem}" if len(places.ggufs) > 1 else ""
        if places.server is not None:
            found += _llama_servers(places, places.server, file, suffix)
        found += _llama_cpp_pythons(places, file, suffix)
    if places.spec.backend != LLAMA_CPP:
        found += _transformers(places.spec)
    return found


def chosen(entrants: Sequence[Entrant], patterns: Sequence[str]) -> list[Entrant]:
    """Those that a pattern names, and always the first; all without patterns. Raises LaneError."""
    names = [entrant.lane.name for entrant in entrants]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise LaneError(f"no lane is named {pattern!r}; known: {'; '.join(names)}")
    return [
        entrant
        for place, entrant in enumerate(entrants)
        if not place or not patterns or any(fnmatchcase(entrant.lane.name, p) for p in patterns)
    ]


def _named(program: str, mode: str, make: Make) -> Entrant:
    """The plain lane that it is compared with has the same settings, which follow a comma."""
    name = f"{program}: {mode}"
    _, comma, settings = mode.partition(",")
    return Entrant(Lane(name, name), mode, make, f"{program}: {PLAIN_LANE}{comma}{settings}")


def _llama_servers(places: Places, server: Path, file: Path, suffix: str) -> Iterator[Entrant]:
    for number, (mode, arguments) in enumerate(llama_server.modes(server).items()):
        log = places.logs / f"llama-server-{file.stem}-{number}.log"
        make = partial(llama_server.LlamaServer, server, file, arguments, places.context, log)
        yield _named(f"llama-server{suffix}", mode, make)


def _llama_cpp_pythons(places: Places, file: Path, suffix: str) -> Iterator[Entrant]:
    for mode in (libraries.PLAIN, libraries.LOOKUP):
        arguments = (file, places.context, mode)
        make = partial(Library, "llama-cpp-python", libraries.load_llama_cpp, arguments)
        yield _named(f"llama-cpp-python{suffix}", mode, make)


def _transformers(spec: ModelSpec) -> Iterator[Entrant]:
    draft = None if spec.draft_folder is None else Path(spec.draft_folder)
    arguments = (Path(spec.folder), draft, spec.dtype)
    make = partial(Library, "transformers", libraries.load_transformers, arguments)
    modes = [libraries.PLAIN, libraries.LOOKUP]
    modes += [libraries.ASSISTED] if draft else []
    for mode in modes:
        yield _named("transformers", mode, make)
