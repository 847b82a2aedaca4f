"""Reading ahead: while nobody asks anything, the engine reads what the next question will stand behind."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass

from app.chat.loaded_model import LoadedModel
from app.errors import AppError
from app.reasoning_effort import AS_TAUGHT, Thinking
from engine.errors import EngineError
from engine.request import Done, FinishReason, GenerationRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedQuestion:
    """A question that a person is about to ask."""

    conversation: str | None  # None: one that has not begun
    system: str = ""  # what such a one tells the model first
    begun: str = ""  # what the question begins with: files
    thinking: Thinking = AS_TAUGHT  # before its answer


Asks = Callable[[LoadedModel, ExpectedQuestion], Awaitable[GenerationRequest]]


class Prefetch:
    """Reads for one question at a time, the newest that is expected.

    Whoever asks the engine for something breaks that off; it is taken up again with ``go_on``.
    """

    def __init__(self, asks: Asks) -> None:
        """``asks`` makes the request of an expected question."""
        self._asks = asks
        self.tells: list[Callable[[], object]] = []  # when reading begins, and when it is over
        self._expected: ExpectedQuestion | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        """Whether something is being read."""
        return self._task is not None and not self._task.done()

    def expect(self, expected: ExpectedQuestion | None) -> None:
        """Another question is expected than before, or none."""
        self._expected = expected

    def go_on(self, model: LoadedModel) -> None:
        """Read what is left to be read; what is read for another question breaks off."""
        if self._task is not None:
            self._task.cancel()
        if self._expected is not None:
            self._task = asyncio.create_task(self._read(model, self._expected), name="read ahead")
            self._task.add_done_callback(self._tell)
            self._tell()

    async def close(self) -> None:
        """Expect nothing any more, and leave nothing running."""
        self._expected = None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _tell(self, _: object = None) -> None:
        for tell in self.tells:
            tell()

    async def _read(self, model: LoadedModel, expected: ExpectedQuestion) -> None:
        try:
            read = await self._follow(model, expected)
        except (AppError, EngineError) as error:  # nobody asked for it, and who asks is told
            log.info("nothing is read ahead: %s", error)
            read = True
        if read and self._expected is expected:
            self._expected = None

    async def _follow(self, model: LoadedModel, expected: ExpectedQuestion) -> bool:
        """Whether all was read."""
        request = await self._asks(model, expected)
        async with aclosing(model.worker.generate(request)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.reason is not FinishReason.CANCELLED
        return False
