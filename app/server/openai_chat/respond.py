"""Answers over HTTP: whole or streamed, in the shape that their route gives them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from app.request import Completion, Delta, Piece
from app.server.errors import ApiError, Failure, explain
from app.server.openai_chat.answer import Body, Shape, together
from app.server.openai_chat.schemas import RequestBody
from app.server.sse import DONE, ClientLeftError, EventStream, attend, drop, event
from engine.errors import ContextOverflow
from engine.request import FinishReason

CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody is there to read it
Arrived = tuple[int, Delta]  # the place of an answer among its request's choices, and what is new
FAILED = "generation_failed"  # where the engine knew no better


async def respond(
    asked: RequestBody,
    answers: Sequence[AsyncGenerator[Delta]],
    shapes: Sequence[Shape],
    request: Request,
) -> Response:
    """What ``asked`` gets, one shape an answer; bad input fails before anything is sent, as plain HTTP."""
    arriving = _merged(answers)
    try:
        if not asked.stream:
            reports = await attend(request, _reports(arriving, len(shapes)))
            pairs = zip(shapes, reports, strict=True)
            choices = [shape.choice(report) for shape, report in pairs]
            return JSONResponse(shapes[0].completion(choices, together(reports)))
        first = await attend(request, anext(arriving))
        if isinstance(first[1], Completion):
            finished(first[1])
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except ContextOverflow as error:
        raise ApiError(replace(explain(error), param=asked.filling)) from error
    return EventStream(_events(shapes, first, arriving, include_usage=asked.include_usage))


async def _merged(answers: Sequence[AsyncGenerator[Delta]]) -> AsyncGenerator[Arrived]:
    """Deltas of all answers as they come, each with its answer's place; raises what one raised."""
    arrived: asyncio.Queue[tuple[int, Delta | Exception | None]] = asyncio.Queue()

    async def follow(at: int, deltas: AsyncGenerator[Delta]) -> None:
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    arrived.put_nowait((at, delta))
        except Exception as error:  # noqa: BLE001 - raised where the answers are awaited
            arrived.put_nowait((at, error))
        arrived.put_nowait((at, None))

    following = [asyncio.create_task(follow(at, deltas)) for at, deltas in enumerate(answers)]
    running = len(following)
    try:
        while running:
            at, delta = await arrived.get()
            if isinstance(delta, Exception):
                raise delta
            if delta is None:
                running -= 1
            else:
                yield at, delta
    finally:
        await drop(*following)


def finished(report: Completion) -> Completion:
    """The report of an answer that ended by itself; any other is a failure to the client."""
    if report.finish_reason is FinishReason.ERROR:
        raise ApiError(
            Failure(500, report.error or "the answer broke off", code=report.code or FAILED)
        )
    if report.finish_reason is FinishReason.CANCELLED:
        raise ApiError(Failure(503, "the answer was stopped before its end", code="cancelled"))
    return report


async def _reports(arriving: AsyncGenerator[Arrived], many: int) -> list[Completion]:
    """The reports of so many answers."""
    found: dict[int, Completion] = {}
    async with aclosing(arriving):
        async for at, delta in arriving:
            if isinstance(delta, Completion):
                found[at] = finished(delta)
    if len(found) < many:
        raise ApiError(Failure(500, "the answer ended without a report"))
    return [found[at] for at in range(many)]


async def _chunks(
    shapes: Sequence[Shape],
    first: Arrived,
    rest: AsyncIterator[Arrived],
    *,
    include_usage: bool,
) -> AsyncGenerator[Body]:
    """How a stream begins, every text, the ends; counts when they were asked for."""
    for shape in shapes:
        if (begin := shape.first()) is not None:
            yield begin
    reports = []
    async for at, delta in _chain(first, rest):
        shape = shapes[at]
        if isinstance(delta, Piece):
            if (chunk := shape.piece(delta)) is not None:
                yield chunk
            continue
        reports.append(finished(delta))
        if (held_back := shape.rest()) is not None:
            yield held_back
        yield shape.last(delta)
    if include_usage and reports:
        yield shapes[0].counts(together(reports))


async def _chain(first: Arrived, rest: AsyncIterator[Arrived]) -> AsyncGenerator[Arrived]:
    yield first
    async for arrived in rest:
        yield arrived


async def _events(
    shapes: Sequence[Shape],
    first: Arrived,
    rest: AsyncGenerator[Arrived],
    *,
    include_usage: bool,
) -> AsyncGenerator[bytes]:
    """Chunks as events. A failure is an event too, and then no [DONE]: it must not look whole."""
    empty_usage = {"usage": None} if include_usage else {}
    async with aclosing(rest):
        try:
            async for chunk in _chunks(shapes, first, rest, include_usage=include_usage):
                yield event({**empty_usage, **chunk})
        except Exception as error:  # noqa: BLE001 - the HTTP edge: told to the client, logged by explain
            yield event(explain(error).body)
            return
    yield DONE
