"""Answers over HTTP: whole or as server-sent events, in the form of a protocol."""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, TypeVar

from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from app.chat.answering_model import Prepared
from app.chat.assistant import Assistant
from app.chat.reply import Arrived
from app.request import Completion, Delta
from app.server.errors import ApiError, Failure, explain
from app.server.exchange import CLIENT_CLOSED_REQUEST
from app.server.foreign import headers_of
from app.server.request_body import RequestBody
from app.server.usage import Body
from engine.errors import ContextOverflow
from engine.request import FinishReason

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"  # a comment: clients skip it, and it shows that a connection is dead
PING_SECONDS = 15.0
FAILED = "generation_failed"  # the code of an error that the engine gave none


class Protocol(ABC):
    """How one protocol writes the answers to one request; ``index`` is the place of an answer.

    Every delta and completion passes through it, also where the client gets the whole at once.
    """

    names_events: ClassVar[bool] = False  # an event's name is its "type"; a stream has no [DONE]
    prepared: Sequence[Prepared] = ()  # what is answered, before the first event

    @abstractmethod
    def first(self) -> Iterator[Body]:
        """The events that a stream starts with."""

    @abstractmethod
    def delta(self, index: int, delta: Delta) -> Iterator[Body]:
        """The events of a delta."""

    @abstractmethod
    def last(self, index: int, completion: Completion) -> Iterator[Body]:
        """The events at the end of an answer."""

    @abstractmethod
    def whole(self, completions: list[Completion]) -> Body:
        """All answers at once, after all of their deltas and ends."""

    def end(self, completions: list[Completion]) -> Iterator[Body]:
        """The events after the last answer."""
        yield from ()

    def failed(self, failure: Failure, scope: Scope) -> Body:
        """The event of an answer that broke off."""
        return failure.body(scope)


async def respond(
    assistant: Assistant,
    body: RequestBody,
    protocol: Protocol,
    request: Request,
) -> Response:
    """Answer ``body``; what fails before the first event is a plain HTTP error."""
    try:
        protocol.prepared = await attend(request.receive, _prepared(assistant, body))
        arriving = assistant.answers(protocol.prepared, body.choices, PING_SECONDS)
        freed = [what for each in protocol.prepared for what in each.freed]
        headers = headers_of(body.skipped, freed)
        if not body.stream:
            whole = await attend(request.receive, _whole(protocol, arriving))
            named = {"freed": freed} if freed else {}
            return JSONResponse({**whole, **named}, headers=headers)
        first = await attend(request.receive, _first(arriving))
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except ContextOverflow as error:
        message = body.too_long(error.needed, error.holds)
        failure = replace(explain(error, request.scope), param=body.prompt_field, message=message)
        raise ApiError(failure) from error
    return EventStream(_events(protocol, first, arriving, request.scope), headers)


async def _prepared(assistant: Assistant, body: RequestBody) -> list[Prepared]:
    return [await assistant.prepare(each) for each in body.chat_requests]


def finished(completion: Completion) -> Completion:
    """The completion of an answer that ended by itself; raises ApiError for any other."""
    if completion.finish_reason is FinishReason.ERROR:
        raise ApiError(
            Failure(500, completion.error or "the answer broke off", code=completion.code or FAILED)
        )
    if completion.finish_reason is FinishReason.CANCELLED:
        raise ApiError(Failure(503, "the answer was stopped before its end", code="cancelled"))
    return completion


async def _first(arriving: AsyncGenerator[Arrived | None]) -> Arrived:
    """The first delta or completion; raises ApiError where an answer fails before any text."""
    first = None
    try:
        while first is None:
            first = await anext(arriving)
        if isinstance(first[1], Completion):
            finished(first[1])
    except BaseException:
        await arriving.aclose()
        raise
    return first


async def _whole(protocol: Protocol, arriving: AsyncGenerator[Arrived | None]) -> Body:
    completions: dict[int, Completion] = {}
    async with aclosing(arriving):
        async for arrived in arriving:
            if arrived is not None:
                for _ in _bodies(protocol, arrived, completions):
                    pass
    if not completions:
        raise ApiError(Failure(500, "the answer ended without a completion"))
    return protocol.whole([completions[index] for index in sorted(completions)])


def _bodies(
    protocol: Protocol, arrived: Arrived, completions: dict[int, Completion]
) -> Iterator[Body]:
    index, event = arrived
    if isinstance(event, Delta):
        yield from protocol.delta(index, event)
    else:
        completions[index] = finished(event)
        yield from protocol.last(index, event)


async def _events(
    protocol: Protocol, first: Arrived, rest: AsyncGenerator[Arrived | None], scope: Scope
) -> AsyncGenerator[bytes]:
    """A failure is an event too; [DONE] never follows it, or the answer would look complete."""
    named, failed = protocol.names_events, False
    async with aclosing(_stream(protocol, first, rest)) as stream:
        try:
            async for body in stream:
                yield PING if body is None else event(body, body["type"] if named else "")
        except Exception as error:  # noqa: BLE001 - the HTTP edge: sent to the client, logged by explain
            failed, body = True, protocol.failed(explain(error, scope), scope)
            yield event(body, body["type"] if named else "")
    if not (named or failed):
        yield DONE


async def _stream(
    protocol: Protocol, first: Arrived, rest: AsyncGenerator[Arrived | None]
) -> AsyncGenerator[Body | None]:
    """All events; None where nothing happens for a while."""
    completions: dict[int, Completion] = {}
    async with aclosing(rest):
        for body in chain(protocol.first(), _bodies(protocol, first, completions)):
            yield body
        async for arrived in rest:
            if arrived is None:
                yield None
                continue
            for body in _bodies(protocol, arrived, completions):
                yield body
        for body in protocol.end([completions[at] for at in sorted(completions)]):
            yield body


def event(body: Mapping[str, Any], name: str = "") -> bytes:
    """``body`` as one server-sent event, with a name or without."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


class ClientLeftError(ConnectionError):
    """The client has closed its connection."""


async def attend(receive: Receive, work: Awaitable[T]) -> T:
    """The result of ``work``; when the client leaves it is cancelled, and ClientLeftError raised."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_departure(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeftError
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)  # what they clean up


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """A response of events; their generator is closed as soon as the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], headers: Mapping[str, str]) -> None:
        own = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, headers={**own, **headers})
        self.events = events

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end or the client leaves."""
        with suppress(ClientLeftError):
            await attend(receive, self.stream_response(send))

    @override
    async def stream_response(self, send: Send) -> None:
        """Send all events, and close their generator."""
        async with aclosing(self.events):
            await super().stream_response(send)
