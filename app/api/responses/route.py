"""The route of responses: whole, or as a stream of named events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from app.api.answer import Body
from app.api.errors import ApiError, Failure, explain
from app.api.models import check_served
from app.api.respond import CLIENT_CLOSED_REQUEST, finished
from app.api.responses.answer import ResponseAnswer
from app.api.responses.schemas import ResponseRequest
from app.api.sse import ClientLeftError, EventStream, attend, event
from app.assistant import Assistant
from app.turn import Delta, Piece, Report
from engine.errors import ContextOverflow


def router(assistant: Assistant) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.post("/responses", response_model=None)
    async def answer(body: ResponseRequest, request: Request) -> Response:
        check_served(assistant, body.model)
        reader = None if body.use is None else await assistant.call_reader(body.use)
        shape = ResponseAnswer(body, assistant.token_bytes, reader)
        return await _respond(body, assistant.reply(body.turn), shape, request)

    return routes


async def _respond(
    asked: ResponseRequest,
    deltas: AsyncGenerator[Delta],
    shape: ResponseAnswer,
    request: Request,
) -> Response:
    """Bad input fails before anything is sent, as plain HTTP."""
    try:
        if not asked.stream:
            return JSONResponse(shape.whole(await attend(request, _report(deltas))))
        first = await attend(request, anext(deltas))
        if isinstance(first, Report):
            finished(first)
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except ContextOverflow as error:
        raise ApiError(replace(explain(error), param=asked.filling)) from error
    return EventStream(_sent(shape, first, deltas))


async def _report(deltas: AsyncGenerator[Delta]) -> Report:
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, Report):
                return finished(delta)
    raise ApiError(Failure(500, "the answer ended without a report"))


async def _sent(
    shape: ResponseAnswer, first: Delta, rest: AsyncGenerator[Delta]
) -> AsyncGenerator[bytes]:
    """Events with their names and numbers; a failure is one, too."""
    number = 0
    async with aclosing(_events(shape, first, rest)) as events:
        async for body in events:
            yield event({**body, "sequence_number": number}, body["type"])
            number += 1


async def _events(
    shape: ResponseAnswer, first: Delta, rest: AsyncGenerator[Delta]
) -> AsyncGenerator[Body]:
    for body in shape.first():
        yield body
    async with aclosing(rest):
        try:
            delta: Delta | None = first
            while delta is not None:
                told = (
                    shape.piece(delta) if isinstance(delta, Piece) else shape.last(finished(delta))
                )
                for body in told:
                    yield body
                delta = await anext(rest, None)
        except Exception as error:  # noqa: BLE001 - the HTTP edge: told to the client, logged by explain
            yield shape.failed(explain(error))
