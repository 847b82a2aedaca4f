"""Chat completions, streamed and whole."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from app.api.answer import Answer, Body
from app.api.errors import ApiError, Failure, explain
from app.api.models import check_served
from app.api.schemas import ChatRequest
from app.api.sse import DONE, ClientLeftError, EventStream, attend, event
from app.assistant import Assistant
from app.turn import Delta, Piece, Report
from engine.request import FinishReason

_CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody is there to read it
FAILED = "generation_failed"  # where the engine knew no better


def router(assistant: Assistant) -> APIRouter:
    """The routes of chat."""
    routes = APIRouter()

    @routes.post("/chat/completions", response_model=None)
    async def complete(body: ChatRequest, request: Request) -> Response:
        check_served(assistant, body.model)
        answer = Answer(body.model, assistant.token_bytes)
        deltas = assistant.reply(body.turn)
        try:
            if not body.stream:
                report = await attend(request, _last(deltas))
                return JSONResponse(answer.completion(report))
            first = await attend(request, anext(deltas))  # bad input fails here, as plain HTTP
            if isinstance(first, Report):
                _finished(first)
        except ClientLeftError:
            return Response(status_code=_CLIENT_CLOSED_REQUEST)
        return EventStream(_events(answer, first, deltas, include_usage=body.include_usage))

    return routes


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
    answer: Answer, first: Delta, rest: AsyncIterator[Delta], *, include_usage: bool
) -> AsyncGenerator[Body]:
    """The role, every text, the end; counts when they were asked for."""
    yield answer.chunk({"role": "assistant", "content": ""})
    async for delta in _chain(first, rest):
        if isinstance(delta, Piece):
            if delta.text or delta.logprobs:
                yield answer.chunk({"content": delta.text}, told=delta.logprobs)
            continue
        yield answer.last_chunk(_finished(delta))
        if include_usage:
            yield answer.usage_chunk(delta)


async def _chain(first: Delta, rest: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
    yield first
    async for delta in rest:
        yield delta


async def _events(
    answer: Answer, first: Delta, rest: AsyncGenerator[Delta], *, include_usage: bool
) -> AsyncGenerator[bytes]:
    """Chunks as events. A failure is an event too, and then no [DONE]: it must not look whole."""
    empty_usage = {"usage": None} if include_usage else {}
    async with aclosing(rest):
        try:
            async for chunk in _chunks(answer, first, rest, include_usage=include_usage):
                yield event({**empty_usage, **chunk})
        except Exception as error:  # noqa: BLE001 - the HTTP edge: told to the client, logged by explain
            yield event(explain(error).body)
            return
    yield DONE
