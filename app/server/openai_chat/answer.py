"""OpenAI's chat and text completions: the answers as bodies and chunks, and the two routes."""

import time
import uuid
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from typing_extensions import override

from app.chat.answering_model import Prepared
from app.chat.assistant import Assistant
from app.request import CallDelta, Completion, Delta
from app.server.description import written
from app.server.models import served
from app.server.openai_chat.schemas import ChatBody, CompletionBody
from app.server.request_body import RequestBody
from app.server.respond import Protocol, respond
from app.server.tool_schemas import CUSTOM, FUNCTION, INPUT, custom_input, custom_names
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
        total = self._total(completions)
        return {
            **self._envelope(self.kind, choices),
            "usage": usage(total),
            **timings_and_speculation(total),
        }

    @override
    def end(self, completions: list[Completion]) -> Iterator[Body]:
        """Token counts in a chunk without a choice, where they were requested."""
        if self._body.include_usage:
            yield self._chunk([]) | {"usage": usage(self._total(completions))}

    def _total(self, completions: Sequence[Completion]) -> Completion:
        """All answers as one."""
        return summed_up(completions, self._body.choices)

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

    def __init__(self, body: ChatBody, token_bytes: TokenBytes) -> None:
        super().__init__(body, token_bytes)
        self._custom = custom_names(body.tools)
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
        custom = self._custom_calls(index)
        if parts := [part for part in delta.calls if part.index not in custom]:
            part["tool_calls"] = _joined_calls(parts)
        if part or delta.logprobs:
            yield self._part(index, part or {"content": ""}, logprobs=delta.logprobs)

    @override
    def last(self, index: int, completion: Completion) -> Iterator[Body]:
        """The texts of custom calls are known when their arguments are whole."""
        if custom := self._custom_calls(index):
            calls = [call for call in self._calls(index) if call["index"] in custom]
            yield self._part(index, {"tool_calls": calls})
        reason = self._reason(completion)
        yield {**self._part(index, {}, reason), **timings_and_speculation(completion)}

    @override
    def _choice(self, index: int, completion: Completion) -> Body:
        deltas = self._deltas[index]
        text = "".join(one.text for one in deltas)
        message: Body = {"role": "assistant", "content": text, "refusal": None}
        if reasoning := "".join(one.reasoning for one in deltas):
            message["reasoning_content"] = reasoning
        if calls := self._calls(index):
            for call in calls:
                del call["index"]
            message |= {"content": text or None, "tool_calls": calls}
        return {
            "index": index,
            "message": message,
            "logprobs": log_probabilities(completion.logprobs, self._token_bytes),
            "finish_reason": self._reason(completion),
        }

    def _custom_calls(self, index: int) -> set[int]:
        """The places of those among the calls."""
        parts = (part for one in self._deltas[index] for part in one.calls) if self._custom else ()
        return {part.index for part in parts if part.name in self._custom}

    def _calls(self, index: int) -> list[Body]:
        """All calls so far."""
        calls = _joined_calls([part for one in self._deltas[index] for part in one.calls])
        return [_custom(call) if call[FUNCTION]["name"] in self._custom else call for call in calls]

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


def _custom(call: Body) -> Body:
    """A call of a custom tool, as the call of a function that it is here."""
    function = call[FUNCTION]
    own = {"name": function["name"], INPUT: custom_input(function["arguments"])}
    return {"index": call["index"], "id": call["id"], "type": CUSTOM, CUSTOM: own}


class TextProtocol(OpenAIProtocol):
    """The rests of texts; whole answers and chunks have one form.

    With an echo each choice starts with its prompt, and has its log probabilities.
    """

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, body: CompletionBody, token_bytes: TokenBytes) -> None:
        super().__init__(body, token_bytes)
        self._echo, self._silent = bool(body.echo), body.max_tokens == 0
        self._told: dict[int, _Told] = {}

    @override
    def first(self) -> Iterator[Body]:
        yield from ()

    @override
    def delta(self, index: int, delta: Delta) -> Iterator[Body]:
        text = self._told_of(index).add(delta)
        if text or delta.logprobs or delta.echo:
            columns = self._told[index].new_columns(self._token_bytes)
            yield self._chunk([self._body_choice(index, text, columns, None)])

    @override
    def last(self, index: int, completion: Completion) -> Iterator[Body]:
        if index not in self._told:  # nothing was said, not even the prompt
            yield from self.delta(index, Delta())
        choice = self._body_choice(index, "", None, completion.finish_reason.value)
        yield {**self._chunk([choice]), **timings_and_speculation(completion)}

    @override
    def _choice(self, index: int, completion: Completion) -> Body:
        told, reason = self._told_of(index), completion.finish_reason.value
        columns = _columns(told.scored, Offsets(told.start), self._token_bytes)
        return self._body_choice(index, told.text, columns, reason)

    @override
    def _total(self, completions: Sequence[Completion]) -> Completion:
        total = super()._total(completions)
        return replace(total, stats=replace(total.stats, emitted=0)) if self._silent else total

    def _told_of(self, index: int) -> "_Told":
        if index not in self._told:
            prompt = self.prepared[index // self._body.choices]
            self._told[index] = _Told(prompt, echo=self._echo, silent=self._silent)
        return self._told[index]

    def _body_choice(
        self, index: int, text: str, logprobs: Body | None, finish_reason: str | None
    ) -> Body:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


Scored = tuple[int, Logprob | None]
"""A token and what is known of it: nothing of the first one of a prompt."""


class _Told:
    """What one choice says: its prompt if that is echoed, the text, log probabilities."""

    def __init__(self, prompt: Prepared, *, echo: bool, silent: bool) -> None:
        """``silent``: the prompt alone is wanted."""
        self.text, self._silent = "", silent
        self._unsaid = prompt.chat.text if echo else ""
        first = prompt.first_tokens if echo and prompt.chat.logprobs is not None else ()
        self.scored: list[Scored] = [(token, None) for token in first]
        self.start = 0 if echo else len(prompt.chat.text)  # offsets count from that of the prompt
        self._offsets, self._sent = Offsets(self.start), 0

    def add(self, delta: Delta) -> str:
        """What it adds to the text."""
        said, self._unsaid = self._unsaid, ""
        said += "" if self._silent else delta.text
        self.text += said
        new = (*delta.echo, *(() if self._silent else delta.logprobs))
        self.scored += ((one.token, one) for one in new)
        return said

    def new_columns(self, token_bytes: TokenBytes) -> Body | None:
        """Log probabilities of tokens that were not sent yet, by column."""
        new, self._sent = self.scored[self._sent :], len(self.scored)
        return _columns(new, self._offsets, token_bytes)


def _columns(scored: Sequence[Scored], offsets: "Offsets", token_bytes: TokenBytes) -> Body | None:
    if not scored:
        return None
    words = [token_bytes(token) for token, _ in scored]
    return {
        "tokens": [word.decode(errors="replace") for word in words],
        "token_logprobs": [one and max(one.value, IMPOSSIBLE) for _, one in scored],
        "top_logprobs": [one and _likeliest(one, token_bytes) for _, one in scored],
        "text_offset": [*map(offsets.next, words)],
    }


def _likeliest(one: Logprob, token_bytes: TokenBytes) -> dict[str, float]:
    return {
        token_bytes(token).decode(errors="replace"): max(value, IMPOSSIBLE)
        for token, value in one.likeliest
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
        named = served(assistant, body)
        return await respond(
            assistant,
            named,
            ChatProtocol(named, assistant.current.named(named.model).text.token_bytes),
            request,
        )

    @routes.post(
        "/completions",
        response_model=None,
        responses=written({"object": TextProtocol.kind}, "created", "choices"),
    )
    async def complete(body: CompletionBody, request: Request) -> Response:
        named = served(assistant, body)
        return await respond(
            assistant,
            named,
            TextProtocol(named, assistant.current.named(named.model).text.token_bytes),
            request,
        )

    return routes
