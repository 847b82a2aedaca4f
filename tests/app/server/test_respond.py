"""Streams of events: encoding, comments while nothing happens, failures as events, an end that cleans up."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from app.chat.reply import Arrived
from app.request import ChatRequest, Completion, Delta
from app.server.errors import ApiError
from app.server.respond import PING, EventStream, Protocol, event, respond
from engine.request import FinishReason
from tests.app.asynchronous import asynchronous
from tests.app.history.replies import stats

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)
DELTA = (0, Delta("", "a", (), "a", (1,)))
END = (0, Completion("a", (1,), FinishReason.STOP, stats()))


@given(st.dictionaries(st.text(), JSON))
def test_law_event_is_one_line_of_data(body: dict[str, Any]) -> None:
    sent = event(body)
    assert sent.startswith(b"data: ")
    assert sent.endswith(b"\n\n")
    assert b"\n" not in sent[:-2]
    assert b"\r" not in sent
    assert json.loads(sent[6:]) == body


class Named(Protocol):
    """Tells the type of every event only."""

    names_events = True

    @override
    def first(self) -> Iterator[dict[str, Any]]:
        yield {"type": "created"}

    @override
    def delta(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        yield {"type": "delta"}

    @override
    def last(self, index: int, completion: Completion) -> Iterator[dict[str, Any]]:
        yield {"type": "last"}

    @override
    def whole(self, completions: list[Completion]) -> dict[str, Any]:
        return {"answers": len(completions)}


class Broken(Named):
    """Cannot even start."""

    @override
    def first(self) -> Iterator[dict[str, Any]]:
        yield {"type": "created"}
        raise ValueError


class Answers:
    """An assistant with a script: deltas and completions, or None for silence."""

    def __init__(self, *script: Arrived | asyncio.Event | None) -> None:
        self.script, self.closed = script, False

    async def answers(
        self, request: ChatRequest, count: int, quiet_seconds: float
    ) -> AsyncGenerator[Arrived | None]:
        try:
            for item in self.script:
                if isinstance(item, asyncio.Event):
                    await item.wait()
                else:
                    yield item
        finally:
            self.closed = True


async def answered(answers: Answers, protocol: Protocol, *, stream: bool = True) -> Any:
    body: Any = SimpleNamespace(
        stream=stream, chat_request=ChatRequest(()), choices=1, prompt_field="messages"
    )
    staying: Any = SimpleNamespace(receive=lambda: asyncio.Event().wait())
    assistant: Any = answers
    return await respond(assistant, body, protocol, staying)


async def sent(response: EventStream) -> list[bytes]:
    return [part.split(b"\n")[0] async for part in response.events]


@asynchronous
async def test_an_answer_whole_and_as_events() -> None:
    found = await answered(Answers(None, DELTA, END), Named(), stream=False)
    assert json.loads(found.body) == {"answers": 1}
    names = await sent(await answered(Answers(None, DELTA, END), Named()))
    assert names == [b"event: created", b"event: delta", b"event: last"]


@asynchronous
async def test_comments_fill_a_pause() -> None:
    parts = await sent(await answered(Answers(DELTA, None, None, END), Named()))
    ping = PING.strip()
    assert parts == [b"event: created", b"event: delta", ping, ping, b"event: last"]


@asynchronous
async def test_closing_in_a_pause_closes_the_answer_at_once() -> None:
    answers = Answers(DELTA, asyncio.Event())
    response = await answered(answers, Named())
    async with aclosing(response.events) as events:
        await anext(events)
    assert answers.closed


@asynchronous
async def test_a_stream_that_breaks_off_at_its_start_says_so_and_ends_its_answer() -> None:
    """It was torn without an event, and its answer ran on."""
    answers = Answers(DELTA, END)
    response = await answered(answers, Broken())
    parts = [part async for part in response.events]
    assert b"event: created" in parts[0]
    assert b"log of the server" in parts[-1]
    assert len(parts) == 2
    assert answers.closed


@asynchronous
async def test_a_stream_that_fails_before_its_first_word_is_a_plain_error() -> None:
    """Clients read the status before they read events."""
    failed = Completion("", (), FinishReason.ERROR, stats(), error="no room", code="out_of_memory")
    answers = Answers((0, failed))
    with pytest.raises(ApiError) as caught:
        await answered(answers, Named())
    assert (caught.value.failure.status, caught.value.failure.code) == (500, "out_of_memory")
    assert answers.closed
