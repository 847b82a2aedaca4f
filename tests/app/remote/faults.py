"""What an engine, its network or a machine between may do to an answer; each takes one and returns it."""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum


class Act(Enum):
    """What happens instead of bytes."""

    STALL = "no more bytes come, and the connection stays"
    CUT = "the connection is closed where it is"


Part = bytes | Act
EVENTS, PLAIN = "text/event-stream; charset=utf-8", "application/json"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Answer:
    """An HTTP response; ``length`` is what it claims, and None sends it in chunks."""

    status: int
    parts: tuple[Part, ...]
    kind: str = PLAIN
    length: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    before: Act | None = None  # what happens before its first byte

    @property
    def streams(self) -> bool:
        return self.length is None

    def body(self) -> bytes:
        return b"".join(part for part in self.parts if isinstance(part, bytes))


Fault = Callable[[Answer], Answer]


def whole(body: bytes, status: int = 200, kind: str = PLAIN, **headers: str) -> Answer:
    """An answer at once."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer(status, (body,), kind, len(body), named)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


# --- it ends, or does not ---------------------------------------------------------------------------


def breaks_off(after: int) -> Fault:
    """Closed in the middle of the body; ``after`` counts events, or thirds of a whole answer."""
    return lambda answer: replace(answer, parts=(*_first(answer, after), Act.CUT))


def ends_early(after: int) -> Fault:
    """The HTTP body is complete, and its last events are missing."""
    return lambda answer: replace(answer, parts=tuple(_first(answer, after)))


def stalls(after: int) -> Fault:
    return lambda answer: replace(answer, parts=(*_first(answer, after), Act.STALL))


def _first(answer: Answer, after: int) -> Sequence[Part]:
    if answer.streams:
        return answer.parts[:after]
    body = answer.body()
    return (body[: after * len(body) // 3],)


def says_nothing(answer: Answer) -> Answer:
    """Not even a status."""
    return replace(answer, before=Act.STALL)


def hangs_up(answer: Answer) -> Answer:
    """Closed before the status."""
    return replace(answer, before=Act.CUT)


# --- it says what is not so --------------------------------------------------------------------------


def claims_more(answer: Answer) -> Answer:
    """A length that never comes: the connection ends first."""
    body = answer.body()
    return replace(answer, parts=(body, Act.CUT), length=len(body) + 1000)


def claims_less(answer: Answer) -> Answer:
    body = answer.body()
    return replace(answer, parts=(body[:-10],), length=len(body) - 10)


def claims_usage(usage: object) -> Fault:
    """Whatever it counted."""

    def lie(answer: Answer) -> Answer:
        def changed(part: Part) -> Part:
            if not isinstance(part, bytes) or b'"usage"' not in part:
                return part
            head = b"data: " if answer.streams else b""
            body = json.loads(part.removeprefix(head)) | {"usage": usage}
            return head + json.dumps(body).encode() + (b"\n\n" if answer.streams else b"")

        parts = tuple(map(changed, answer.parts))
        length = None if answer.streams else sum(map(len, parts))  # type: ignore[arg-type]
        return replace(answer, parts=parts, length=length)

    return lie


def sends(*between: bytes, at: int = 3) -> Fault:
    """More bytes in the middle of a stream; a whole answer is replaced by them."""

    def add(answer: Answer) -> Answer:
        if not answer.streams:
            return replace(whole(b"".join(between)), kind=answer.kind)
        return replace(answer, parts=(*answer.parts[:at], *between, *answer.parts[at:]))

    return add


def is_called(kind: str) -> Fault:
    """Another content type for the same bytes."""
    return lambda answer: replace(answer, kind=kind)


def is_replaced(other: Answer) -> Fault:
    return lambda _: other


def is_packed(answer: Answer) -> Answer:
    """As gzip, flushed after each event, though nobody asked for it."""
    packer = zlib.compressobj(wbits=31)
    parts = [
        packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH)
        for part in answer.parts
        if isinstance(part, bytes)
    ]
    parts.append(packer.flush())
    length = None if answer.streams else sum(map(len, parts))
    headers = (*answer.headers, ("content-encoding", "gzip"))
    return replace(answer, parts=tuple(parts), length=length, headers=headers)


# --- what goes between, and what comes instead -------------------------------------------------------

HEAD = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(delta: object, **more: object) -> bytes:
    """An event with one choice."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **more}
    return event({**HEAD, "choices": [choice]})


HARMLESS = {
    "comments": b": keep-alive\n\n:\n\n",
    "an unknown event": b'event: sglext_ids\ndata: {"choices": [], "sglext": {"input_ids": [1]}}\n\n',
    "empty choices": event({**HEAD, "choices": []}),
    "a second role": chunk({"role": "assistant", "content": ""}),
    "an empty delta": chunk({}),
    "unknown fields": event({**HEAD, "choices": [], "x": {"y": [1]}, "sglext": {"z": None}}),
}
BROKEN = {
    "an event without data": b"id: 7\nretry: 10\n\n",  # harmless, but OpenAI's library reads it
    "half of JSON": b'data: {"id": "x", "choices": [{"index": 0, "del\n\n',
    "no JSON": b"data: <html>\n\n",
    "a list": b"data: [1, 2]\n\n",
    "a number": b"data: 7\n\n",
    "a null delta": chunk(None),
    "choices that are none": event({**HEAD, "choices": None}),
    "content that is no text": chunk({"content": {"text": 7}}),
    "calls that are none": chunk({"tool_calls": [{"index": "x", "function": 7}]}),
    "a choice that was not asked for": chunk({"content": "x"}, index=7),
    "numbers that are none": b'data: {"choices": [{"index": 0, "delta": {}, "logprobs": {"content": [{"token": "x", "logprob": NaN}]}}]}\n\n',
    "bytes that are no text": b'data: {"choices": [{"index": 0, "delta": {"content": "\xff\xfe"}}]}\n\n',
}
PAGE = (
    b"<html><head><title>502 Bad Gateway</title></head><body>" + b"nginx " * 200 + b"</body></html>"
)
BAD_GATEWAY = whole(PAGE, 502, "text/html")
