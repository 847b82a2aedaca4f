"""Prefetch: while the engine is idle, it reads what comes before the next question."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass

from app.chat.loaded_model import LoadedModel
from app.errors import AppError
from app.request import AS_TAUGHT, Thinking
from engine.errors import EngineError
from engine.request import Done, FinishReason, GenerationRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedQuestion:
    """A question that a person is about to ask."""

    conversation: str | None  # None: a new one
    system: str = ""  # the system prompt of a new one
    prefix: str = ""  # the start of the question: files
    thinking: Thinking = AS_TAUGHT  # before its answer


MakeRequest = Callable[[LoadedModel, ExpectedQuestion], Awaitable[GenerationRequest]]


class Prefetch:
    """Reads for one question at a time, the one that is expected last.

    The engine breaks it off for any other request; ``resume`` starts it again.
    """

    def __init__(self, make_request: MakeRequest) -> None:
        self._make_request = make_request
        self.callbacks: list[Callable[[], object]] = []  # called when reading starts or ends
        self.expected: ExpectedQuestion | None = None  # whose prompt is not all read
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        """Whether something is being read."""
        return self._task is not None and not self._task.done()

    def expect(self, expected: ExpectedQuestion | None) -> None:
        """Expect another question than before, or none."""
        self.expected = expected

    def resume(self, model: LoadedModel) -> None:
        """Read what is left to read; reading for another question ends."""
        if self._task is not None:
            self._task.cancel()
        if self.expected is not None:
            self._task = asyncio.create_task(self._read(model, self.expected), name="read ahead")
            self._task.add_done_callback(self._notify)
            self._notify()

    async def close(self) -> None:
        """Expect nothing, and leave nothing running."""
        self.expected = None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _notify(self, _: object = None) -> None:
        for call in self.callbacks:
            call()

    async def _read(self, model: LoadedModel, expected: ExpectedQuestion) -> None:
        try:
            complete = await self._follow(model, expected)
        except (AppError, EngineError) as error:  # the question itself will raise it again
            log.info("nothing is read ahead: %s", error)
            complete = True
        if complete and self.expected is expected:
            self.expected = None

    async def _follow(self, model: LoadedModel, expected: ExpectedQuestion) -> bool:
        """Whether all was read."""
        request = await self._make_request(model, expected)
        async with aclosing(model.worker.generate(request)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.reason is not FinishReason.CANCELLED
        return False
