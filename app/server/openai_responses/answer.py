"""OpenAI's responses: an answer as items, its numbered events, and the route."""

import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from itertools import count, groupby
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.types import Scope
from typing_extensions import override

from app.chat.assistant import Assistant
from app.request import CallDelta, Completion, Delta
from app.server.description import ANSWERED, answered, written
from app.server.door import owner
from app.server.errors import Failure
from app.server.models import served
from app.server.openai_responses.client_tools import KINDS, NAMESPACE, ClientKind, OfferedTool
from app.server.openai_responses.kept import Kept
from app.server.openai_responses.schemas import ResponsesBody, joined, messages_of
from app.server.respond import Protocol, respond
from app.server.tool_schemas import (
    CUSTOM,
    FUNCTION,
    INPUT,
    Allowed,
    custom_input,
    written_arguments,
)
from app.server.usage import Body, TokenBytes, log_probabilities, timings_and_speculation
from engine.request import FinishReason

_FIRST = {"content_index": 0}  # a message has one part
COMPLETED, INCOMPLETE, IN_PROGRESS, FAILED = "completed", "incomplete", "in_progress", "failed"
REASONING, MESSAGE, CALL, CUSTOM_CALL = "reasoning", "message", "function_call", "custom_tool_call"
_PREFIXES = {REASONING: "rs", MESSAGE: "msg", CALL: "fc", CUSTOM_CALL: "ctc"}  # of ids
_KIND, _FIELDS = {"object": "response"}, ("created_at", "error", "output", "status")
_WORDS = {REASONING: "reasoning_text", MESSAGE: "output_text", CALL: "function_call_arguments"}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


class _Item:
    """A part of the answer that is being written: reasoning, a message, or a call."""

    def __init__(self, kind: str, **own: str | list[Body]) -> None:
        """``own`` are the fields that only this kind has."""
        self.kind, self.id, self._own = kind, _new_id(_PREFIXES.get(kind, kind)), own
        self.takes_arguments = kind not in _WORDS or kind == CALL
        self._text, self._logprobs = "", list[Body]()

    def body(self, status: str) -> Body:
        """The item so far."""
        whole: Body = {"content": [] if status == IN_PROGRESS else [self._part()]}
        said = {"arguments": self._text} if self.kind == CALL else whole
        return {"id": self.id, "type": self.kind, "status": status, **self._own, **said}

    def started(self, at: Body) -> Iterator[Body]:
        """Events after its start; ``at`` names the item."""
        if self.kind != CALL:
            yield _event("content_part.added", {**at, **_FIRST, "part": self._part()})

    def more(self, at: Body, text: str, logprobs: Sequence[Body] = ()) -> Iterator[Body]:
        """Events of more text."""
        self._text += text
        self._logprobs += logprobs
        place = {} if self.kind == CALL else _FIRST
        likely = {"logprobs": logprobs} if self.kind == MESSAGE else {}
        yield _event(f"{_WORDS[self.kind]}.delta", {**at, **place, "delta": text, **likely})

    def ended(self, at: Body) -> Iterator[Body]:
        """Events before its end."""
        done = f"{_WORDS[self.kind]}.done"
        if self.kind == CALL:
            yield _event(done, {**at, "name": self._own["name"], "arguments": self._text})
        else:
            yield _event(done, {**at, **_FIRST, **self._said()})
            yield _event("content_part.done", {**at, **_FIRST, "part": self._part()})

    def _said(self) -> Body:
        likely = {"logprobs": self._logprobs} if self.kind == MESSAGE else {}
        return {"text": self._text, **likely}

    def _part(self) -> Body:
        notes: Body = {"annotations": []} if self.kind == MESSAGE else {}
        return {"type": _WORDS[self.kind], **self._said(), **notes}


class _WholeCall(_Item):
    """A call that is known when its arguments are whole."""

    @override
    def body(self, status: str) -> Body:
        return {"id": self.id, "type": self.kind, "status": status, **self._own, **self._fields()}

    def _fields(self) -> Body:
        """What the arguments say."""
        return {INPUT: custom_input(self._text)}

    @override
    def started(self, at: Body) -> Iterator[Body]:
        yield from ()

    @override
    def more(self, at: Body, text: str, logprobs: Sequence[Body] = ()) -> Iterator[Body]:
        self._text += text
        yield from ()

    @override
    def ended(self, at: Body) -> Iterator[Body]:
        for name, value in self._fields().items():
            yield _event(f"{self.kind}_{name}.delta", {**at, "delta": value})
            yield _event(f"{self.kind}_{name}.done", {**at, name: value})


class _BuiltInCall(_WholeCall):
    """A call of a tool that the protocol describes."""

    def __init__(self, tool: ClientKind, **own: str) -> None:
        super().__init__(tool.call, **own)
        self._tool = tool

    @override
    def _fields(self) -> Body:
        return self._tool.fields(written_arguments(self._text))

    @override
    def ended(self, at: Body) -> Iterator[Body]:
        yield from ()  # the item has it all


def _call_item(part: CallDelta, spec: OfferedTool | None) -> _Item:
    """The item of a call that begins."""
    if spec is None or not (spec.is_custom or spec.client_kind):
        kind = CALL
    elif spec.client_kind:
        return _BuiltInCall(KINDS[spec.client_kind], call_id=part.id)
    else:
        kind = CUSTOM_CALL
    name, group = (part.name, "") if spec is None else (spec.function.name, spec.namespace)
    own = {"call_id": part.id, "name": name, **({NAMESPACE: group} if group else {})}
    return _WholeCall(kind, **own) if kind == CUSTOM_CALL else _Item(kind, **own)


class ResponsesProtocol(Protocol):
    """One response and its numbered events."""

    names_events = True

    def __init__(self, body: ResponsesBody, token_bytes: TokenBytes, kept: Kept) -> None:
        """``body`` is resolved; the answer joins ``kept`` if it may."""
        self._body, self._token_bytes, self._kept = body, token_bytes, kept
        self._id, self._created = _new_id("resp"), int(time.time())
        self._done: list[Body] = []
        self._item: _Item | None = None
        self._logprobs: list[Body] = []  # of text that is still held back
        self._tools = {spec.called: spec for spec in body.tools or ()}
        self._calls = 0  # calls that started
        self._numbers = count()  # of events

    @override
    def whole(self, completions: list[Completion]) -> Body:
        [completion] = completions
        return self._response(self._status(completion), completion)

    @override
    def first(self) -> Iterator[Body]:
        response = {"response": self._response(IN_PROGRESS)}
        return self._numbered(_event(name, response) for name in ("created", IN_PROGRESS))

    @override
    def delta(self, index: int, delta: Delta) -> Iterator[Body]:
        return self._numbered(self._delta(delta))

    @override
    def last(self, index: int, completion: Completion) -> Iterator[Body]:
        return self._numbered(self._last(completion))

    @override
    def failed(self, failure: Failure, scope: Scope) -> Body:
        response = self._response(FAILED)
        response["error"] = {"code": failure.code or "server_error", "message": failure.message}
        return next(self._numbered([_event(FAILED, {"response": response})]))

    def _numbered(self, events: Iterable[Body]) -> Iterator[Body]:
        for event in events:
            yield {**event, "sequence_number": next(self._numbers)}

    def _delta(self, delta: Delta) -> Iterator[Body]:
        entries = log_probabilities(delta.logprobs, self._token_bytes)
        self._logprobs += entries["content"] if entries else []
        if delta.reasoning:
            yield from self._think(delta.reasoning)
        if delta.text:
            yield from self._say(delta.text)
        for part in delta.calls:
            yield from self._call(part)

    def _last(self, completion: Completion) -> Iterator[Body]:
        unsent = bool(self._logprobs) and self._writes(MESSAGE)
        if unsent or not (self._done or self._item):
            yield from self._say("")
        status = self._status(completion)
        yield from self._close(status)
        response = self._response(status, completion)
        if self._body.stored:
            said = joined([*self._body.input, *messages_of(self._done)])
            self._kept.add(response, said)
        yield _event(status, {"response": response})

    def _status(self, completion: Completion) -> str:
        """A call that a stop text cut off is incomplete, too."""
        cut = self._calls > completion.calls
        length = completion.finish_reason is FinishReason.LENGTH
        return INCOMPLETE if cut or length else COMPLETED

    def _think(self, text: str) -> Iterator[Body]:
        if not self._writes(REASONING):
            yield from self._open(_Item(REASONING, summary=[]))
        self._logprobs = []  # reasoning has no place for them
        yield from self._more(text)

    def _say(self, text: str) -> Iterator[Body]:
        if not self._writes(MESSAGE):
            yield from self._open(_Item(MESSAGE, role="assistant"))
        logprobs, self._logprobs = self._logprobs, []
        if text or logprobs:
            yield from self._more(text, logprobs)

    def _call(self, part: CallDelta) -> Iterator[Body]:
        if part.id:
            self._calls += 1
            yield from self._open(_call_item(part, self._tools.get(part.name)))
        if part.arguments and self._item is not None and self._item.takes_arguments:
            yield from self._more(part.arguments)

    def _writes(self, kind: str) -> bool:
        return self._item is not None and self._item.kind == kind

    def _more(self, text: str, logprobs: Sequence[Body] = ()) -> Iterator[Body]:
        if self._item is not None:
            yield from self._item.more(self._at(self._item), text, logprobs)

    def _open(self, item: _Item) -> Iterator[Body]:
        yield from self._close(COMPLETED)
        self._item = item
        yield _event("output_item.added", {**self._place(), "item": item.body(IN_PROGRESS)})
        yield from item.started(self._at(item))

    def _close(self, status: str) -> Iterator[Body]:
        if self._item is None:
            return
        yield from self._item.ended(self._at(self._item))
        body, self._item = self._item.body(status), None
        yield _event("output_item.done", {**self._place(), "item": body})
        self._done.append(body)

    def _at(self, item: _Item) -> Body:
        return {"item_id": item.id, **self._place()}

    def _place(self) -> Body:
        return {"output_index": len(self._done)}

    def _response(self, status: str, completion: Completion | None = None) -> Body:
        length = completion is not None and completion.finish_reason is FinishReason.LENGTH
        cut = {"reason": "max_output_tokens"} if status == INCOMPLETE and length else None
        body: Body = {
            "id": self._id, "object": "response", "created_at": self._created, "status": status,
            "error": None, "incomplete_details": cut, "output": list(self._done),
            "usage": None if completion is None else _usage(completion), **_echoed(self._body),
        }  # fmt: skip
        return body if completion is None else {**body, **timings_and_speculation(completion)}


def _event(name: str, body: Body) -> Body:
    return {"type": f"response.{name}", **body}


def _usage(completion: Completion) -> Body:
    stats = completion.stats
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens},
        "output_tokens": stats.emitted,
        "output_tokens_details": {"reasoning_tokens": completion.reasoning_tokens},
        "total_tokens": stats.prompt_tokens + stats.emitted,
    }


def _echoed(body: ResponsesBody) -> Body:
    """Fields of the request, which clients expect in the response."""
    form = None if body.text is None else body.text.format
    described = {} if form is None else form.model_dump(by_alias=True, exclude_none=True)
    return {
        "model": body.model,
        "instructions": body.instructions or None,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "presence_penalty": body.presence_penalty or 0.0,
        "frequency_penalty": body.frequency_penalty or 0.0,
        "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
        "background": False,
        "service_tier": "default",
        "safety_identifier": None,
        "prompt_cache_key": None,
        "store": body.stored,
        "temperature": body.sampling.temperature,
        "text": {"format": described or {"type": "text"}},
        "tool_choice": _echoed_choice(body.tool_choice, body.tools or ()),
        "tools": [*_echoed_tools(body.tools or ())],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": body.sampling.top_p,
        "truncation": "disabled",
    }


def _echoed_tools(specs: Sequence[OfferedTool]) -> Iterator[Body]:
    """As responses send tools, groups together."""
    for group, members in groupby(specs, lambda spec: spec.namespace):
        tools = [_echoed_tool(spec) for spec in members]
        named = {"type": NAMESPACE, "name": group, "description": "", "tools": tools}
        yield from [named] if group else tools


def _echoed_tool(spec: OfferedTool) -> Body:
    own = spec.function
    if spec.client_kind:
        return {"type": spec.client_kind}
    if spec.is_custom:
        return {"type": CUSTOM, "name": own.name, "description": own.description}
    about = {**spec.tool.described[FUNCTION], "name": own.name}
    return {"type": FUNCTION, **about, "strict": spec.tool.strict}


def _echoed_choice(choice: Any, specs: Sequence[OfferedTool]) -> str | Body:
    tools = {spec.called: spec for spec in specs}

    def named(name: str) -> Body:
        spec = tools.get(name)
        if spec is None or not (spec.client_kind or spec.namespace or spec.is_custom):
            return {"type": FUNCTION, "name": name}
        group = {NAMESPACE: spec.namespace} if spec.namespace else {}
        own = {"name": spec.function.name, **group}
        return {"type": spec.client_kind} if spec.client_kind else {"type": spec.type, **own}

    if isinstance(choice, Allowed):
        chosen = [named(name) for name in choice.names]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": chosen}
    return named(choice["name"]) if isinstance(choice, dict) else choice or "auto"


def router(assistant: Assistant) -> APIRouter:
    """The routes ``/responses`` and ``/responses/ID``."""
    routes, kept_by_owner = APIRouter(), defaultdict[str | None, Kept](Kept)

    def kept_of(request: Request) -> Kept:
        return kept_by_owner[owner(request.scope)]

    @routes.post("/responses", response_model=None, responses=written(_KIND, *_FIELDS))
    async def answer(body: ResponsesBody, request: Request) -> Response:
        kept = kept_of(request)
        whole = served(assistant, body).resolved(kept)
        protocol = ResponsesProtocol(
            whole, assistant.current.named(whole.model).text.token_bytes, kept
        )
        return await respond(assistant, whole, protocol, request)

    @routes.get("/responses/{name}", responses=answered(_KIND, *ANSWERED, *_FIELDS))
    async def show(name: str, request: Request) -> Body:
        return kept_of(request).response(name, "name", HTTPStatus.NOT_FOUND).body

    @routes.delete("/responses/{name}", responses=answered(_KIND, "id", "deleted"))
    async def forget(name: str, request: Request) -> Body:
        kept_of(request).forget(name, "name")
        return {"id": name, "object": "response", "deleted": True}

    return routes
