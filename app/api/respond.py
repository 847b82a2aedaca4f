"""An answer over HTTP: whole or streamed, in the shape that its route gives it."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from app.api.answer import Body, Shape
from app.api.errors import ApiError, Failure, explain
from app.api.schemas import Asked
from app.api.sse import DONE, ClientLeftError, EventStream, attend, event
from app.turn import Delta, Piece, Report
from engine.errors import ContextOverflow
from engine.request import FinishReason

_CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody is there to read it
FAILED = "generation_failed"  # where the engine knew no better


async def respond(
    asked: Asked, deltas: AsyncGenerator[Delta], shape: Shape, request: Request
) -> Response:
    """What ``asked`` gets; bad input fails before anything is sent, as plain HTTP."""
    try:
        if not asked.stream:
            report = await attend(request, _last(deltas))
            return JSONResponse(shape.completion(report))
        first = await attend(request, anext(deltas))
        if isinstance(first, Report):
            _finished(first)
    except ClientLeftError:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    except ContextOverflow as error:
        raise ApiError(replace(explain(error), param=asked.filling)) from error
    return EventStream(_events(shape, first, deltas, include_usage=asked.include_usage))


def _finished(report: Report) -> Report:
    """The report of an answer that ended by itself; any other is a failure to the client."""
    if report.finish_reason is FinishReason.ERROR:
        raise ApiError(
            Failure(500, report.error or "the answer broke off", code=report.code or FAILED)
        )
    if report.finish_reason is FinishReason.CANCELLED:
        raise ApiError(Failure(503, "the answer was stopped before its end", code="cancelled"))
    return report


async def _last(deltas: AsyncGenerator[Delta]) -> Report:
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, Report):
                return _finished(delta)
    raise ApiError(Failure(500, "the answer ended without a report"))


async def _chunks(
    shape: Shape, first: Delta, rest: AsyncIterator[Delta], *, include_usage: bool
) -> AsyncGenerator[Body]:
    """How a stream begins, every text, the end; counts when they were asked for."""
    if (begin := shape.first()) is not None:
        yield begin
    async for delta in _chain(first, rest):
        if isinstance(delta, Piece):
            if (chunk := shape.piece(delta)) is not None:
                yield chunk
            continue
        report = _finished(delta)
        if (held_back := shape.rest()) is not None:
            yield held_back
        yield shape.last(report)
        if include_usage:
            yield shape.counts(delta)


async def _chain(first: Delta, rest: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
    yield first
    async for delta in rest:
        yield delta


async def _events(
    shape: Shape, first: Delta, rest: AsyncGenerator[Delta], *, include_usage: bool
) -> AsyncGenerator[bytes]:
    """Chunks as events. A failure is an event too, and then no [DONE]: it must not look whole."""
    empty_usage = {"usage": None} if include_usage else {}
    async with aclosing(rest):
        try:
            async for chunk in _chunks(shape, first, rest, include_usage=include_usage):
                yield event({**empty_usage, **chunk})
        except Exception as error:  # noqa: BLE001 - the HTTP edge: told to the client, logged by explain
            yield event(explain(error).body)
            return
    yield DONE
