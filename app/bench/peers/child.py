"""A library in a process of its own: it loads a model, then answers one question after another."""

import asyncio
import multiprocessing
from collections.abc import AsyncGenerator, Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from typing_extensions import override

from app.bench.peers.program import Chunk, Program, Question
from app.errors import RequestFailed
from app.sandbox import end_with_parent

Answers = Callable[[str, Question], Iterator[Chunk]]
Load = Callable[..., Answers]  # a function of a module, called in the process
END_SECONDS = 5.0


class Library(Program):
    """What ``load`` makes of the arguments, in its own process."""

    def __init__(self, name: str, load: Load, arguments: tuple[Any, ...]) -> None:
        """``name`` is for errors."""
        self._name, self._load, self._arguments = name, load, arguments
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    @property
    @override
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @override
    async def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_main, args=(theirs, self._load, self._arguments), daemon=True
        )
        self._process.start()
        theirs.close()
        await self._received()

    @override
    async def answer(self, mode: str, question: Question) -> AsyncGenerator[Chunk, None]:
        assert self._connection is not None, "start comes first"
        self._connection.send((mode, question))
        while (chunk := await self._received()) is not None:
            yield chunk

    @override
    async def close(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        await asyncio.to_thread(self._process.join, END_SECONDS)
        if self._process.is_alive():
            self._process.kill()

    async def _received(self) -> Chunk | None:
        """The next message; raises RequestFailed."""
        assert self._connection is not None, "start comes first"
        try:
            message = await asyncio.to_thread(self._connection.recv)
        except (EOFError, OSError) as error:
            raise RequestFailed(f"the process of {self._name} ended") from error
        if isinstance(message, str):
            raise RequestFailed(f"{self._name}: {message}")
        found: Chunk | None = message
        return found


def _main(connection: Connection, load: Load, arguments: tuple[Any, ...]) -> None:
    """None when it is loaded and at the end of each answer; an error as its sentence."""
    end_with_parent()
    try:
        answers = load(*arguments)
        connection.send(None)
        while True:
            mode, question = connection.recv()
            for chunk in answers(mode, question):
                connection.send(chunk)
            connection.send(None)
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001 - the caller reports whatever a library raises
        connection.send(f"{type(error).__name__}: {error}")
