"""Anthropic's messages: an answer as one message of blocks, its events, and the routes."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from typing_extensions import override

from app.chat.assistant import Assistant
from app.request import CallDelta, Completion, Delta
from app.server.anthropic.schemas import CountBody, MessagesBody
from app.server.description import answered, written
from app.server.foreign import headers_of
from app.server.models import check_served, served
from app.server.respond import Protocol, respond
from app.server.tool_schemas import written_arguments
from app.server.usage import Body, timings_and_speculation
from engine.request import FinishReason, Stats

TEXT, CALL, THINKING = "text", "tool_use", "thinking"
# How much of a prompt was cached is known when it has been read: the last event has that count.
_CACHED_LATER = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


class MessagesProtocol(Protocol):
    """One message of blocks."""

    names_events = True

    def __init__(self, body: MessagesBody) -> None:
        self._body, self._silent = body, body.max_tokens == 0
        self._id = f"msg_{uuid.uuid4().hex}"
        self._blocks: list[Body] = []
        self._open = False  # more may come for the last block
        self._arguments = ""  # JSON of the last block, if it is a call

    @override
    def whole(self, completions: list[Completion]) -> Body:
        [completion] = completions
        return {
            **self._message(self._blocks, self._reason(completion), self._usage(completion)),
            "stop_sequence": self._stopped_by(completion),
            **timings_and_speculation(completion),
        }

    @override
    def first(self) -> Iterator[Body]:
        tokens = sum(each.prompt_tokens for each in self.prepared)
        counts = {**_CACHED_LATER, "input_tokens": tokens, "output_tokens": 0}
        yield {"type": "message_start", "message": self._message([], None, counts)}

    @override
    def delta(self, index: int, delta: Delta) -> Iterator[Body]:
        if self._silent:
            return
        if delta.reasoning:
            yield from self._think(delta.reasoning)
        if delta.text:
            yield from self._say(delta.text)
        for part in delta.calls:
            yield from self._call(part)

    @override
    def last(self, index: int, completion: Completion) -> Iterator[Body]:
        if not (self._blocks or self._silent):
            yield from self._say("")
        yield from self._close()
        reason, stopped_by = self._reason(completion), self._stopped_by(completion)
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": stopped_by},
            "usage": self._usage(completion),
            **timings_and_speculation(completion),
        }
        yield {"type": "message_stop"}

    def _think(self, text: str) -> Iterator[Body]:
        if not self._open:
            yield from self._begin({"type": THINKING, "thinking": "", "signature": ""})
        self._blocks[-1]["thinking"] += text
        yield self._delta({"type": "thinking_delta", "thinking": text})

    def _say(self, text: str) -> Iterator[Body]:
        if not (self._open and self._blocks[-1]["type"] == TEXT):
            yield from self._begin({"type": TEXT, "text": ""})
        if text:
            self._blocks[-1]["text"] += text
            yield self._delta({"type": "text_delta", "text": text})

    def _call(self, part: CallDelta) -> Iterator[Body]:
        if part.id:
            yield from self._begin({"type": CALL, "id": part.id, "name": part.name, "input": {}})
        if part.arguments:
            self._arguments += part.arguments
            yield self._delta({"type": "input_json_delta", "partial_json": part.arguments})

    def _begin(self, block: Body) -> Iterator[Body]:
        yield from self._close()
        yield {
            "type": "content_block_start",
            "index": len(self._blocks),
            "content_block": dict(block),
        }
        self._blocks.append(block)
        self._open, self._arguments = True, ""

    def _delta(self, delta: Body) -> Body:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}

    def _close(self) -> Iterator[Body]:
        if self._open:
            self._open = False
            if self._blocks[-1]["type"] == CALL:
                self._blocks[-1]["input"] = written_arguments(self._arguments)
            yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _reason(self, completion: Completion) -> str:
        if completion.finish_reason is FinishReason.LENGTH or self._silent:
            return "max_tokens"
        if completion.stopped_by:
            return "stop_sequence"
        return CALL if any(block["type"] == CALL for block in self._blocks) else "end_turn"

    def _stopped_by(self, completion: Completion) -> str | None:
        return None if self._silent else completion.stopped_by or None

    def _usage(self, completion: Completion) -> Body:
        stats = completion.stats
        return _usage(replace(stats, emitted=0) if self._silent else stats)

    def _message(self, blocks: list[Body], reason: str | None, usage: Body) -> Body:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._body.model,
            "content": blocks, "stop_reason": reason, "stop_sequence": None,
            "usage": usage,
        }  # fmt: skip


def _usage(stats: Stats) -> Body:
    """Prompt tokens that were read, and separately those that were cached."""
    return {
        "input_tokens": stats.prompt_tokens - stats.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": stats.cached_tokens,
        "output_tokens": stats.emitted,
    }


def router(assistant: Assistant) -> APIRouter:
    """The routes ``/messages`` and ``/messages/count_tokens``."""
    routes = APIRouter()

    @routes.post(
        "/messages",
        response_model=None,
        responses=written({"type": "message"}, "role", "content", "stop_reason"),
    )
    async def answer(body: MessagesBody, request: Request) -> Response:
        named = served(assistant, body)
        return await respond(assistant, named, MessagesProtocol(named), request)

    @routes.post("/messages/count_tokens", responses=answered({}, "input_tokens"))
    async def count(body: CountBody, response: Response) -> dict[str, Any]:
        check_served(assistant, body.model)
        response.headers.update(headers_of(body.skipped))
        return {"input_tokens": await assistant.prompt_tokens(body.chat_request)}

    return routes
