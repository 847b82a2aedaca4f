"""An answer as items, and as the events that tell how they come about."""

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from app.request import Completion, Piece
from app.server.errors import Failure
from app.server.openai_chat.answer import Body, Spelling, how_it_went, log_probabilities
from app.server.openai_responses.schemas import ResponsesBody
from app.text.output_parser import OutputParser
from app.text.tools.call_parser import CallPart, ParsedOutput, ToolCallParser
from engine.request import FinishReason

_FIRST = {"content_index": 0}  # a message has one part
COMPLETED, INCOMPLETE, IN_PROGRESS, FAILED = "completed", "incomplete", "in_progress", "failed"


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


class _Item(Protocol):
    """A part of the answer that is not over yet."""

    def body(self, status: str) -> Body:
        """The item as it is by now."""
        ...

    def begun(self, at: Body) -> Iterator[Body]:
        """Events that follow its own; ``at`` says whose they are."""
        ...

    def ended(self, at: Body) -> Iterator[Body]:
        """Events before its end."""
        ...


@dataclass
class _Message:
    """What is said."""

    id: str = field(default_factory=lambda: _new_id("msg"))
    text: str = ""
    told: list[Body] = field(default_factory=list)  # log probabilities

    def body(self, status: str) -> Body:
        content = [] if status == IN_PROGRESS else [self._part()]
        return {
            "id": self.id, "type": "message", "status": status, "role": "assistant", "content": content
        }  # fmt: skip

    def begun(self, at: Body) -> Iterator[Body]:
        yield _event("content_part.added", {**at, **_FIRST, "part": self._part()})

    def more(self, at: Body, text: str, told: list[Body]) -> Body:
        """The next words."""
        self.text += text
        self.told += told
        return _event("output_text.delta", {**at, **_FIRST, "delta": text, "logprobs": told})

    def ended(self, at: Body) -> Iterator[Body]:
        yield _event("output_text.done", {**at, **_FIRST, "text": self.text, "logprobs": self.told})
        yield _event("content_part.done", {**at, **_FIRST, "part": self._part()})

    def _part(self) -> Body:
        return {
            "type": "output_text", "text": self.text, "annotations": [], "logprobs": self.told
        }  # fmt: skip


@dataclass
class _Call:
    """A function that is called."""

    name: str
    call: str
    id: str = field(default_factory=lambda: _new_id("fc"))
    arguments: str = ""

    def body(self, status: str) -> Body:
        return {
            "id": self.id, "type": "function_call", "status": status, "call_id": self.call,
            "name": self.name, "arguments": self.arguments,
        }  # fmt: skip

    def begun(self, at: Body) -> Iterator[Body]:
        yield from ()

    def more(self, at: Body, arguments: str) -> Body:
        """The next part of what it is called with."""
        self.arguments += arguments
        return _event("function_call_arguments.delta", {**at, "delta": arguments})

    def ended(self, at: Body) -> Iterator[Body]:
        yield _event(
            "function_call_arguments.done", {**at, "name": self.name, "arguments": self.arguments}
        )


@dataclass
class _Thought:
    """What was thought before anything was said."""

    id: str = field(default_factory=lambda: _new_id("rs"))
    text: str = ""

    def body(self, status: str) -> Body:
        content = [] if status == IN_PROGRESS else [self._part()]
        return {
            "id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content
        }  # fmt: skip

    def begun(self, at: Body) -> Iterator[Body]:
        yield _event("content_part.added", {**at, **_FIRST, "part": self._part()})

    def more(self, at: Body, text: str) -> Body:
        """The next words."""
        self.text += text
        return _event("reasoning_text.delta", {**at, **_FIRST, "delta": text})

    def ended(self, at: Body) -> Iterator[Body]:
        yield _event("reasoning_text.done", {**at, **_FIRST, "text": self.text})
        yield _event("content_part.done", {**at, **_FIRST, "part": self._part()})

    def _part(self) -> Body:
        return {"type": "reasoning_text", "text": self.text}


class ResponseAnswer:
    """One answer and its numbered events."""

    def __init__(
        self, asked: ResponsesBody, spelt: Spelling, reader: ToolCallParser | None = None
    ) -> None:
        """``spelt`` gives the bytes of a token; ``reader`` is there where tools may be called."""
        self._asked, self._spelt, self._hearing = asked, spelt, OutputParser(reader)
        self._id, self._created = _new_id("resp"), int(time.time())
        self._over: list[Body] = []
        self._item: _Message | _Call | _Thought | None = None
        self._told: list[Body] = []  # log probabilities of what is not said yet
        self._calls = 0  # that were begun
        self._numbers = count()  # of events

    def whole(self, report: Completion) -> Body:
        """The response at once."""
        for _ in (*self.piece(Piece(report.text, (), 0, 0, report.logprobs)), *self.last(report)):
            pass
        return self._response(self._status(report), report)

    def first(self) -> Iterator[Body]:
        """What a stream begins with."""
        response = {"response": self._response(IN_PROGRESS)}
        return self._numbered(_event(name, response) for name in ("created", IN_PROGRESS))

    def piece(self, piece: Piece) -> Iterator[Body]:
        """What the next words make known."""
        return self._numbered(self._piece(piece))

    def last(self, report: Completion) -> Iterator[Body]:
        """What was held back, the ends of what is open, and how it went."""
        return self._numbered(self._last(report))

    def failed(self, failure: Failure) -> Body:
        """The event of an answer that broke off."""
        response = self._response(FAILED)
        response["error"] = {"code": failure.code or "server_error", "message": failure.message}
        return next(self._numbered([_event(FAILED, {"response": response})]))

    def _numbered(self, events: Iterable[Body]) -> Iterator[Body]:
        for event in events:
            yield {**event, "sequence_number": next(self._numbers)}

    def _piece(self, piece: Piece) -> Iterator[Body]:
        entries = log_probabilities(piece.logprobs, self._spelt)
        self._told += entries["content"] if entries else []
        yield from self._heard(self._hearing.feed(piece.text))

    def _last(self, report: Completion) -> Iterator[Body]:
        yield from self._heard(self._hearing.end())
        untold = bool(self._told) and isinstance(self._item, _Message)
        if untold or not (self._over or self._item):
            yield from self._say("")
        status = self._status(report)
        yield from self._close(status)
        yield _event(status, {"response": self._response(status, report)})

    def _status(self, report: Completion) -> str:
        """A call that a stop text cut short is not complete, either."""
        cut = self._calls > self._hearing.called
        return INCOMPLETE if cut or report.finish_reason is FinishReason.LENGTH else COMPLETED

    def _heard(self, heard: ParsedOutput) -> Iterator[Body]:
        if heard.thought:
            yield from self._think(heard.thought)
        if heard.said:
            yield from self._say(heard.said)
        for part in heard.calls:
            yield from self._call(part)

    def _think(self, text: str) -> Iterator[Body]:
        thought = self._item
        if not isinstance(thought, _Thought):
            yield from self._open(thought := _Thought())
        self._told = []  # a thought has no place for them
        yield thought.more(self._at(), text)

    def _say(self, text: str) -> Iterator[Body]:
        message = self._item
        if not isinstance(message, _Message):
            yield from self._open(message := _Message())
        told, self._told = self._told, []
        if text or told:
            yield message.more(self._at(), text, told)

    def _call(self, part: CallPart) -> Iterator[Body]:
        if part.id:
            self._calls += 1
            yield from self._open(_Call(part.name, part.id))
        if part.arguments and isinstance(self._item, _Call):
            yield self._item.more(self._at(), part.arguments)

    def _open(self, item: _Message | _Call | _Thought) -> Iterator[Body]:
        yield from self._close(COMPLETED)
        self._item = item
        yield _event("output_item.added", {**self._place(), "item": item.body(IN_PROGRESS)})
        yield from item.begun(self._at())

    def _close(self, status: str) -> Iterator[Body]:
        if self._item is None:
            return
        yield from self._item.ended(self._at())
        body, self._item = self._item.body(status), None
        yield _event("output_item.done", {**self._place(), "item": body})
        self._over.append(body)

    def _at(self) -> Body:
        assert self._item is not None
        return {"item_id": self._item.id, **self._place()}

    def _place(self) -> Body:
        return {"output_index": len(self._over)}

    def _response(self, status: str, report: Completion | None = None) -> Body:
        length = report is not None and report.finish_reason is FinishReason.LENGTH
        cut = {"reason": "max_output_tokens"} if status == INCOMPLETE and length else None
        body: Body = {
            "id": self._id, "object": "response", "created_at": self._created, "status": status,
            "error": None, "incomplete_details": cut, "output": list(self._over),
            "usage": None if report is None else _usage(report), **_echoed(self._asked),
        }  # fmt: skip
        return body if report is None else {**body, **how_it_went(report)}


def _event(name: str, body: Body) -> Body:
    return {"type": f"response.{name}", **body}


def _usage(report: Completion) -> Body:
    stats = report.stats
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens},
        "output_tokens": stats.emitted,
        "output_tokens_details": {"reasoning_tokens": report.thought_tokens},
        "total_tokens": stats.prompt_tokens + stats.emitted,
    }


def _echoed(asked: ResponsesBody) -> Body:
    """What was asked for, which clients expect to be told again."""
    told = None if asked.text is None else asked.text.format
    described = {} if told is None else told.model_dump(by_alias=True, exclude_none=True)
    functions = [spec.tool for spec in asked.tools or ()]
    choice = asked.tool_choice
    return {
        "model": asked.model,
        "instructions": asked.instructions or None,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": asked.sampling.temperature,
        "text": {"format": described or {"type": "text"}},
        "tool_choice": {"type": "function", **choice}
        if isinstance(choice, dict)
        else choice or "auto",
        "tools": [
            {"type": "function", **tool.described["function"], "strict": tool.strict}
            for tool in functions
        ],
        "top_logprobs": asked.top_logprobs or 0,
        "top_p": asked.sampling.top_p,
        "truncation": "disabled",
    }
