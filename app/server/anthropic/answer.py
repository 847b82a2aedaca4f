"""An answer as one message of blocks, and as the events that tell how they come about."""

import json
import uuid
from collections.abc import Iterator

from app.request import Completion, Piece
from app.server.anthropic.schemas import MessagesBody
from app.server.errors import Failure
from app.server.openai_chat.answer import Body, how_it_went
from app.text.output_parser import OutputParser
from app.text.tools.call_parser import CallPart, ParsedOutput, ToolCallParser
from engine.request import FinishReason, Stats

TEXT, CALL, THOUGHT = "text", "tool_use", "thinking"


class MessageAnswer:
    """One answer."""

    def __init__(self, asked: MessagesBody, reader: ToolCallParser | None = None) -> None:
        """``reader`` is there where tools may be called."""
        self._asked, self._hearing = asked, OutputParser(reader)
        self._id = f"msg_{uuid.uuid4().hex}"
        self._blocks: list[Body] = []
        self._open = False  # the last block is not over
        self._given = ""  # JSON of what the last block calls its tool with

    def whole(self, report: Completion) -> Body:
        """The message at once."""
        for _ in (*self.piece(Piece(report.text, (), 0, 0)), *self.last(report)):
            pass
        return {
            **self._message(self._blocks, self._reason(report), report.stats),
            "stop_sequence": report.stopped_by or None,
            **how_it_went(report),
        }

    def first(self) -> Iterator[Body]:
        """A message without blocks; what it takes is told at its end."""
        yield {"type": "message_start", "message": self._message([], None, None)}

    def piece(self, piece: Piece) -> Iterator[Body]:
        """The next words, and parts of calls."""
        heard = self._hearing.feed(piece.text)
        yield from self._heard(heard)

    def last(self, report: Completion) -> Iterator[Body]:
        """What was held back, why the answer ended, and how it went."""
        yield from self._heard(self._hearing.end())
        if not self._blocks:
            yield from self._say("")
        yield from self._close()
        ended = {
            "stop_reason": self._reason(report), "stop_sequence": report.stopped_by or None
        }  # fmt: skip
        usage = _usage(report.stats)
        yield {"type": "message_delta", "delta": ended, "usage": usage, **how_it_went(report)}
        yield {"type": "message_stop"}

    def failed(self, failure: Failure) -> Body:
        """The event of an answer that broke off."""
        return failure.body

    def _heard(self, heard: ParsedOutput) -> Iterator[Body]:
        if heard.thought:
            yield from self._think(heard.thought)
        if heard.said:
            yield from self._say(heard.said)
        for part in heard.calls:
            yield from self._call(part)

    def _think(self, text: str) -> Iterator[Body]:
        if not self._open:
            yield from self._begin({"type": THOUGHT, "thinking": "", "signature": ""})
        self._blocks[-1]["thinking"] += text
        yield self._delta({"type": "thinking_delta", "thinking": text})

    def _say(self, text: str) -> Iterator[Body]:
        if not (self._open and self._blocks[-1]["type"] == TEXT):
            yield from self._begin({"type": TEXT, "text": ""})
        if text:
            self._blocks[-1]["text"] += text
            yield self._delta({"type": "text_delta", "text": text})

    def _call(self, part: CallPart) -> Iterator[Body]:
        if part.id:
            yield from self._begin({"type": CALL, "id": part.id, "name": part.name, "input": {}})
        if part.arguments:
            self._given += part.arguments
            yield self._delta({"type": "input_json_delta", "partial_json": part.arguments})

    def _begin(self, block: Body) -> Iterator[Body]:
        yield from self._close()
        yield {
            "type": "content_block_start",
            "index": len(self._blocks),
            "content_block": dict(block),
        }
        self._blocks.append(block)
        self._open, self._given = True, ""

    def _delta(self, delta: Body) -> Body:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}

    def _close(self) -> Iterator[Body]:
        if self._open:
            self._open = False
            if self._blocks[-1]["type"] == CALL:
                self._blocks[-1]["input"] = _read(self._given)
            yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _reason(self, report: Completion) -> str:
        if report.finish_reason is FinishReason.LENGTH:
            return "max_tokens"
        if report.stopped_by:
            return "stop_sequence"
        return CALL if any(block["type"] == CALL for block in self._blocks) else "end_turn"

    def _message(self, blocks: list[Body], reason: str | None, stats: Stats | None) -> Body:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._asked.model,
            "content": blocks, "stop_reason": reason, "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0} if stats is None else _usage(stats),
        }  # fmt: skip


def _read(arguments: str) -> object:
    """An object; nothing of one that was cut short."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {}


def _usage(stats: Stats) -> Body:
    """Tokens of the prompt that were read, and apart from them those that were cached."""
    return {
        "input_tokens": stats.prompt_tokens - stats.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": stats.cached_tokens,
        "output_tokens": stats.emitted,
    }
