"""OpenAI's chat and text completions: the answers as bodies and chunks, and the two routes."""

import time
import uuid
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from typing import ClassVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from typing_extensions import override

from app.chat.assistant import Assistant
from app.request import CallDelta, Completion, Delta
from app.server.description import written
from app.server.models import check_served
from app.server.openai_chat.schemas import ChatBody, CompletionBody
from app.server.request_body import RequestBody
from app.server.respond import Protocol, respond
from app.server.usage import (
    IMPOSSIBLE,
    Body,
    TokenBytes,
    log_probabilities,
    summed_up,
    timings_and_speculation,
    usage,
)
from engine.request import FinishReason, Logprob


class OpenAIProtocol(Protocol):
    """What chats and texts share: choices with an index, and an envelope around them."""

    prefix: ClassVar[str]  # of the id
    kind: ClassVar[str]  # the "object" of a whole answer
    chunk_kind: ClassVar[str]  # and of a chunk

    def __init__(self, body: RequestBody, token_bytes: TokenBytes) -> None:
        self._body, self._token_bytes = body, token_bytes
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    @override
    def whole(self, completions: list[Completion]) -> Body:
        choices = [self._choice(at, each) for at, each in enumerate(completions)]
        total = summed_up(completions)
        return {
            **self._envelope(self.kind, choices),
            "usage": usage(total),
            **timings_and_speculation(total),
        }

    @override
    def end(self, completions: list[Completion]) -> Iterator[Body]:
        """Token counts in a chunk without a choice, where they were requested."""
        if self._body.include_usage:
            yield self._chunk([]) | {"usage": usage(summed_up(completions))}

    def _choice(self, index: int, completion: Completion) -> Body:
        """A whole answer."""
        raise NotImplementedError

    def _chunk(self, choices: list[Body]) -> Body:
        empty_usage = {"usage": None} if self._body.include_usage else {}
        return {**empty_usage, **self._envelope(self.chunk_kind, choices)}

    def _envelope(self, kind: str, choices: list[Body]) -> Body:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._body.model,
            "system_fingerprint": None,
            "choices": choices,
        }


class ChatProtocol(OpenAIProtocol):
    """Messages of a chat."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, body: RequestBody, token_bytes: TokenBytes) -> None:
        super().__init__(body, token_bytes)
        self._deltas: list[list[Delta]] = [[] for _ in range(body.choices)]

    @override
    def first(self) -> Iterator[Body]:
        for index in range(self._body.choices):
            yield self._part(index, {"role": "assistant", "content": ""})

    @override
    def delta(self, index: int, delta: Delta) -> Iterator[Body]:
        self._deltas[index].append(delta)
        part: Body = {}
        if delta.reasoning:
            part["reasoning_content"] = delta.reasoning  # as llama-server and vLLM name it
        if delta.text:
            part["content"] = delta.text
        if delta.calls:
            part["tool_calls"] = _joined_calls(delta.calls)
        if part or delta.logprobs:
            yield self._part(index, part or {"content": ""}, logprobs=delta.logprobs)

    @override
    def last(self, index: int, completion: Completion) -> Iterator[Body]:
        reason = self._reason(completion)
        yield {**self._part(index, {}, reason), **timings_and_speculation(completion)}

    @override
    def _choice(self, index: int, completion: Completion) -> Body:
        deltas = self._deltas[index]
        text = "".join(one.text for one in deltas)
        message: Body = {"role": "assistant", "content": text, "refusal": None}
        if reasoning := "".join(one.reasoning for one in deltas):
            message["reasoning_content"] = reasoning
        if calls := _joined_calls([part for one in deltas for part in one.calls]):
            for call in calls:
                del call["index"]
            message |= {"content": text or None, "tool_calls": calls}
        return {
            "index": index,
            "message": message,
            "logprobs": log_probabilities(completion.logprobs, self._token_bytes),
            "finish_reason": self._reason(completion),
        }

    def _reason(self, completion: Completion) -> str:
        reason = completion.finish_reason
        return "tool_calls" if completion.calls and reason is FinishReason.STOP else reason.value

    def _part(
        self,
        index: int,
        part: Body,
        finish_reason: str | None = None,
        logprobs: Sequence[Logprob] = (),
    ) -> Body:
        choice = {
            "index": index,
            "delta": part,
            "logprobs": log_probabilities(logprobs, self._token_bytes),
            "finish_reason": finish_reason,
        }
        return self._chunk([choice])


def _joined_calls(parts: Sequence[CallDelta]) -> list[Body]:
    """One entry for each call: clients read only the first entry of an index."""
    found: dict[int, Body] = {}
    for part in parts:
        if part.index not in found:
            start = {"id": part.id, "type": "function"} if part.id else {}
            name = {"name": part.name} if part.name else {}
            function = {**name, "arguments": ""}
            found[part.index] = {"index": part.index, **start, "function": function}
        found[part.index]["function"]["arguments"] += part.arguments
    return list(found.values())


class TextProtocol(OpenAIProtocol):
    """The rest of a text; whole answers and chunks have one form."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, body: CompletionBody, token_bytes: TokenBytes) -> None:
        super().__init__(body, token_bytes)
        self._texts = [""] * body.choices
        self._start = len(body.prompt)  # offsets count from the start of the prompt
        self._offsets = [Offsets(self._start) for _ in self._texts]

    @override
    def first(self) -> Iterator[Body]:
        yield from ()

    @override
    def delta(self, index: int, delta: Delta) -> Iterator[Body]:
        self._texts[index] += delta.text
        if delta.text or delta.logprobs:
            columns = self._columns(delta.logprobs, self._offsets[index])
            yield self._chunk([self._body_choice(index, delta.text, columns, None)])

    @override
    def last(self, index: int, completion: Completion) -> Iterator[Body]:
        choice = self._body_choice(index, "", None, completion.finish_reason.value)
        yield {**self._chunk([choice]), **timings_and_speculation(completion)}

    @override
    def _choice(self, index: int, completion: Completion) -> Body:
        columns = self._columns(completion.logprobs, Offsets(self._start))
        reason = completion.finish_reason.value
        return self._body_choice(index, self._texts[index], columns, reason)

    def _body_choice(
        self, index: int, text: str, logprobs: Body | None, finish_reason: str | None
    ) -> Body:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def _columns(self, logprobs: Sequence[Logprob], offsets: "Offsets") -> Body | None:
        """Log probabilities by column."""
        if not logprobs:
            return None
        words = [self._token_bytes(one.token) for one in logprobs]
        return {
            "tokens": [word.decode(errors="replace") for word in words],
            "token_logprobs": [max(one.value, IMPOSSIBLE) for one in logprobs],
            "top_logprobs": [
                {
                    self._token_bytes(token).decode(errors="replace"): max(value, IMPOSSIBLE)
                    for token, value in one.likeliest
                }
                for one in logprobs
            ],
            "text_offset": [*map(offsets.next, words)],
        }


class Offsets:
    """Where the tokens of a text start, in characters; tokens of one character start together."""

    def __init__(self, start: int) -> None:
        """``start`` characters come before the first token."""
        self._at = start
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def next(self, word: bytes) -> int:
        """The start of the next token: the character that its first byte belongs to."""
        first = self._decoder.decode(word[:1])
        unfinished = bool(self._decoder.getstate()[0])
        offset = self._at + max(0, len(first) + unfinished - 1)  # incomplete ones come before it
        self._at += len(first) + len(self._decoder.decode(word[1:]))
        return offset


def router(assistant: Assistant) -> APIRouter:
    """The routes ``/chat/completions`` and ``/completions``."""
    routes = APIRouter()

    @routes.post(
        "/chat/completions",
        response_model=None,
        responses=written({"object": ChatProtocol.kind}, "created", "choices"),
    )
    async def chat(body: ChatBody, request: Request) -> Response:
        check_served(assistant, body.model)
        return await respond(
            assistant, body, ChatProtocol(body, assistant.loaded.text.token_bytes), request
        )

    @routes.post(
        "/completions",
        response_model=None,
        responses=written({"object": TextProtocol.kind}, "created", "choices"),
    )
    async def complete(body: CompletionBody, request: Request) -> Response:
        check_served(assistant, body.model)
        return await respond(
            assistant, body, TextProtocol(body, assistant.loaded.text.token_bytes), request
        )

    return routes
