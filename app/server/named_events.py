"""One answer to a request, whole or as a stream of events that have names, as newer protocols tell it."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from app.request import Completion, Delta, Piece
from app.server.errors import ApiError, Failure, explain
from app.server.openai_chat.answer import Body
from app.server.openai_chat.respond import CLIENT_CLOSED_REQUEST, finished
from app.server.openai_chat.schemas import RequestBody
from app.server.sse import ClientLeftError, EventStream, attend, event
from engine.errors import ContextOverflow


class Telling(Protocol):
    """How an answer is told; an event's ``type`` is its name."""

    def whole(self, report: Completion) -> Body:
        """The answer at once."""
        ...

    def first(self) -> Iterator[Body]:
        """What a stream begins with."""
        ...

    def piece(self, piece: Piece) -> Iterator[Body]:
        """What the next words make known."""
        ...

    def last(self, report: Completion) -> Iterator[Body]:
        """What was held back, the ends of what is open, and how it went."""
        ...

    def failed(self, failure: Failure) -> Body:
        """The event of an answer that broke off."""
        ...


async def tell(
    asked: RequestBody, deltas: AsyncGenerator[Delta], telling: Telling, request: Request
) -> Response:
    """What ``asked`` gets; bad input fails before anything is sent, as plain HTTP."""
    try:
        if not asked.stream:
            return JSONResponse(telling.whole(await attend(request, _report(deltas))))
        first = await attend(request, anext(deltas))
        if isinstance(first, Completion):
            finished(first)
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except ContextOverflow as error:
        raise ApiError(replace(explain(error), param=asked.filling)) from error
    return EventStream(_sent(telling, first, deltas))


async def _report(deltas: AsyncGenerator[Delta]) -> Completion:
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, Completion):
                return finished(delta)
    raise ApiError(Failure(500, "the answer ended without a report"))


async def _sent(
    telling: Telling, first: Delta, rest: AsyncGenerator[Delta]
) -> AsyncGenerator[bytes]:
    async with aclosing(_events(telling, first, rest)) as events:
        async for body in events:
            yield event(body, body["type"])


def _told(telling: Telling, delta: Delta) -> Iterator[Body]:
    return telling.piece(delta) if isinstance(delta, Piece) else telling.last(finished(delta))


async def _events(
    telling: Telling, first: Delta, rest: AsyncGenerator[Delta]
) -> AsyncGenerator[Body]:
    async with aclosing(rest):
        try:
            for body in telling.first():
                yield body
            delta: Delta | None = first
            while delta is not None:
                for body in _told(telling, delta):
                    yield body
                delta = await anext(rest, None)
        except Exception as error:  # noqa: BLE001 - the HTTP edge: told to the client, logged by explain
            yield telling.failed(explain(error))
