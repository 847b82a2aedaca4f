"""One answer as bodies and chunks: OpenAI's fields, llama-server's timings, our speculation."""

import time
import uuid
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from app.request import Completion, Piece
from app.text.output_parser import OutputParser
from app.text.tools.call_parser import CallPart, ParsedOutput, ToolCallParser
from engine.request import FinishReason, Logprob, Stats

Body = dict[str, Any]
Spelling = Callable[[int], bytes]
IMPOSSIBLE = -9999.0  # OpenAI's number for it; JSON has no infinity


def usage(report: Completion) -> Body:
    """Token counts; cached tokens are part of the prompt's, those of a thought of the answer's.

    Those of a thought and of a prediction are there with one.
    """
    stats, told = report.stats, report.foretold
    details = {"reasoning_tokens": report.thought_tokens} if report.thought_tokens else {}
    if told is not None:
        details["accepted_prediction_tokens"] = told.accepted
        details["rejected_prediction_tokens"] = told.rejected
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.emitted,
        "total_tokens": stats.prompt_tokens + stats.emitted,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        **({"completion_tokens_details": details} if details else {}),
    }


def together(reports: Sequence[Completion]) -> Completion:
    """The answers to one request as one: counts added up, the prompt's once, the longest of times."""
    if len(reports) == 1:
        return reports[0]
    stats = [report.stats for report in reports]
    told = [report.foretold for report in reports if report.foretold is not None]
    added = {
        name: sum(getattr(one, name) for one in stats)
        for name in ("emitted", "passes", "drafted", "accepted")
    }
    longest = {
        name: max(getattr(one, name) for one in stats)
        for name in ("prompt_seconds", "decode_seconds")
    }
    foretold = replace(
        told[0],
        accepted=sum(one.accepted for one in told),
        rejected=sum(one.rejected for one in told),
    ) if told else None  # fmt: skip
    return replace(
        reports[0],
        stats=replace(stats[0], **added, **longest),
        foretold=foretold,
        thought_tokens=sum(report.thought_tokens for report in reports),
    )


def _pace(name: str, count: int, seconds: float) -> Body:
    return {
        f"{name}_n": count,
        f"{name}_ms": round(seconds * 1000, 3),
        f"{name}_per_token_ms": round(seconds * 1000 / count, 3) if count else 0.0,
        f"{name}_per_second": round(count / seconds, 2) if seconds > 0 else 0.0,
    }


def timings(stats: Stats) -> Body:
    """Times under llama-server's names; the draft's are there only when something was drafted."""
    fresh = stats.prompt_tokens - stats.cached_tokens
    drafted = {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return {
        "cache_n": stats.cached_tokens,
        **_pace("prompt", fresh, stats.prompt_seconds),
        **_pace("predicted", stats.emitted, stats.decode_seconds),
        **(drafted if stats.drafted else {}),
    }


def speculation(report: Completion) -> Body:
    """What ran, and why."""
    return {
        "drafter": report.stats.drafter,
        "reason": report.stats.why,
        "passes": report.stats.passes,
        "tokens_per_pass": round(report.tokens_per_pass, 3),
    }


def log_probabilities(told: Sequence[Logprob], spelt: Spelling) -> Body | None:
    """Of every token and the likeliest in its place; None where nobody asked."""
    if not told:
        return None
    content = [
        {
            **_entry(one.token, one.value, spelt),
            "top_logprobs": [_entry(token, value, spelt) for token, value in one.likeliest],
        }
        for one in told
    ]
    return {"content": content, "refusal": None}


def _entry(token: int, value: float, spelt: Spelling) -> Body:
    """A part of a character has its bytes, and a replacement character to look at."""
    said = spelt(token)
    text = said.decode(errors="replace")
    return {"token": text, "logprob": max(value, IMPOSSIBLE), "bytes": list(said)}


class Offsets:
    """Where the tokens of one text begin, in characters: those of one character begin together."""

    def __init__(self, start: int) -> None:
        """``start`` characters stand before the first token."""
        self._at = start
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def next(self, said: bytes) -> int:
        """Of the next token: where the character is that its first byte belongs to."""
        first = self._decoder.decode(said[:1])
        unfinished = bool(self._decoder.getstate()[0])
        offset = self._at + max(0, len(first) + unfinished - 1)  # broken off ones stand before it
        self._at += len(first) + len(self._decoder.decode(said[1:]))
        return offset


def spelt_apart(told: Sequence[Logprob], spelt: Spelling, offsets: Offsets) -> Body | None:
    """The same as completions have it, by column."""
    if not told:
        return None
    said = [spelt(one.token) for one in told]
    return {
        "tokens": [one.decode(errors="replace") for one in said],
        "token_logprobs": [max(one.value, IMPOSSIBLE) for one in told],
        "top_logprobs": [
            {
                spelt(t).decode(errors="replace"): max(value, IMPOSSIBLE)
                for t, value in one.likeliest
            }
            for one in told
        ],
        "text_offset": [*map(offsets.next, said)],
    }


class Shape(Protocol):
    """How an answer is told: as a message of a chat, or as the rest of a text."""

    def choice(self, report: Completion) -> Body:
        """The whole answer at once."""
        ...

    def completion(self, choices: list[Body], report: Completion) -> Body:
        """What a request gets that is not streamed; the report is of all choices together."""
        ...

    def first(self) -> Body | None:
        """What a stream begins with, before there is any text."""
        ...

    def piece(self, piece: Piece) -> Body | None:
        """One step of a stream; None where nothing can be said yet."""
        ...

    def rest(self) -> Body | None:
        """What was held back until the answer had ended."""
        ...

    def last(self, report: Completion) -> Body:
        """The step that says why the answer ended, and how it went."""
        ...

    def counts(self, report: Completion) -> Body:
        """The extra step with token counts and no choice, sent only to those who asked."""
        ...


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every body and chunk of one answer repeats."""

    model: str
    prefix: str  # of the answer's id
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def around(self, kind: str, choices: list[Body]) -> Body:
        """A body of this kind."""
        return {
            "id": f"{self.prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
            "choices": choices,
        }


def how_it_went(report: Completion) -> Body:
    """Times, and what ran."""
    return {"timings": timings(report.stats), "speculation": speculation(report)}


class ChatAnswer:
    """A message of the assistant's."""

    def __init__(
        self, envelope: Envelope, index: int, spelt: Spelling, reader: ToolCallParser | None = None
    ) -> None:
        """``spelt`` gives the bytes of a token; ``reader`` is there where tools may be called."""
        self._envelope, self._index, self._spelt = envelope, index, spelt
        self._hearing = OutputParser(reader)

    def choice(self, report: Completion) -> Body:
        """The whole message."""
        heard = self._hearing.feed(report.text)
        left = self._hearing.end()
        heard.said, heard.thought = heard.said + left.said, heard.thought + left.thought
        message: Body = {"role": "assistant", "content": heard.said, "refusal": None}
        if heard.thought:
            message["reasoning_content"] = heard.thought
        if heard.calls:
            calls = [
                {n: v for n, v in call.items() if n != "index"} for call in _called(heard.calls)
            ]
            message |= {"content": heard.said or None, "tool_calls": calls}
        told = log_probabilities(report.logprobs, self._spelt)
        reason = self._reason(report)
        return {
            "index": self._index, "message": message, "logprobs": told, "finish_reason": reason
        }  # fmt: skip

    def completion(self, choices: list[Body], report: Completion) -> Body:
        """All messages."""
        whole = self._envelope.around("chat.completion", choices)
        return {**whole, "usage": usage(report), **how_it_went(report)}

    def first(self) -> Body:
        """Who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> Body | None:
        """The next words, and parts of calls."""
        heard = self._hearing.feed(piece.text)
        delta = _delta(heard)
        silent = not delta and not piece.logprobs
        return None if silent else self._chunk(delta or {"content": ""}, told=piece.logprobs)

    def rest(self) -> Body | None:
        """Text that might have become a call."""
        delta = _delta(self._hearing.end())
        return self._chunk(delta) if delta else None

    def last(self, report: Completion) -> Body:
        """Why it ended."""
        return {**self._chunk({}, self._reason(report)), **how_it_went(report)}

    def counts(self, report: Completion) -> Body:
        """Token counts."""
        return {**self._envelope.around("chat.completion.chunk", []), "usage": usage(report)}

    def _reason(self, report: Completion) -> str:
        ended = report.finish_reason
        return "tool_calls" if self._hearing.called and ended is FinishReason.STOP else ended.value

    def _chunk(
        self,
        delta: Mapping[str, Any],
        finish_reason: str | None = None,
        told: Sequence[Logprob] = (),
    ) -> Body:
        choice = {
            "index": self._index,
            "delta": dict(delta),
            "logprobs": log_probabilities(told, self._spelt),
            "finish_reason": finish_reason,
        }
        return self._envelope.around("chat.completion.chunk", [choice])


def _delta(heard: ParsedOutput) -> Body:
    """What became known, each kind in its field; thoughts where llama-server and vLLM have them."""
    told: Body = {"reasoning_content": heard.thought, "content": heard.said}
    delta = {name: text for name, text in told.items() if text}
    return delta | ({"tool_calls": _called(heard.calls)} if heard.calls else {})


def _called(parts: Sequence[CallPart]) -> list[Body]:
    """The calls of which there are parts, each as one entry: clients read the first of an index."""
    found: dict[int, Body] = {}
    for part in parts:
        if part.index not in found:
            begun = {"id": part.id, "type": "function"} if part.id else {}
            name = {"name": part.name} if part.name else {}
            found[part.index] = {
                "index": part.index,
                **begun,
                "function": {**name, "arguments": ""},
            }
        found[part.index]["function"]["arguments"] += part.arguments
    return list(found.values())


class TextAnswer:
    """The rest of a text; bodies and chunks have one form."""

    def __init__(self, envelope: Envelope, index: int, spelt: Spelling, prompt: str) -> None:
        """``spelt`` gives the bytes of a token; offsets count from the begin of ``prompt``."""
        self._envelope, self._index, self._spelt = envelope, index, spelt
        self._offsets = Offsets(len(prompt))

    def choice(self, report: Completion) -> Body:
        """All of it."""
        told = spelt_apart(report.logprobs, self._spelt, self._offsets)
        return self._choice(report.text, told, report.finish_reason.value)

    def completion(self, choices: list[Body], report: Completion) -> Body:
        """All texts."""
        whole = self._envelope.around("text_completion", choices)
        return {**whole, "usage": usage(report), **how_it_went(report)}

    def first(self) -> None:
        """Nothing is said before there is text."""

    def piece(self, piece: Piece) -> Body | None:
        """The next words."""
        if not piece.text and not piece.logprobs:
            return None
        told = spelt_apart(piece.logprobs, self._spelt, self._offsets)
        return self._body(piece.text, told)

    def rest(self) -> None:
        """Nothing is held back."""

    def last(self, report: Completion) -> Body:
        """Why it ended."""
        return {**self._body("", None, report.finish_reason.value), **how_it_went(report)}

    def counts(self, report: Completion) -> Body:
        """Token counts."""
        return {**self._envelope.around("text_completion", []), "usage": usage(report)}

    def _body(self, text: str, told: Body | None, finish_reason: str | None = None) -> Body:
        choice = self._choice(text, told, finish_reason)
        return self._envelope.around("text_completion", [choice])

    def _choice(self, text: str, told: Body | None, finish_reason: str | None) -> Body:
        return {
            "index": self._index, "text": text, "logprobs": told, "finish_reason": finish_reason
        }  # fmt: skip
