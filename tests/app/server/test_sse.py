"""Streams of events: encoding, comments while nothing happens, an end that cleans up."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Completion, Delta
from app.server.errors import ApiError
from app.server.openai_chat.respond import respond
from app.server.sse import PING, EventStream, event
from engine.request import FinishReason
from tests.app.history.replies import stats

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(st.dictionaries(st.text(), JSON))
def test_law_event_is_one_line_of_data(body: dict[str, Any]) -> None:
    sent = event(body)
    assert sent.startswith(b"data: ")
    assert sent.endswith(b"\n\n")
    assert b"\n" not in sent[:-2]
    assert b"\r" not in sent
    assert json.loads(sent[6:]) == body


def test_comments_fill_a_pause_and_nothing_is_lost() -> None:
    go_on = asyncio.Event()

    async def events() -> AsyncGenerator[bytes]:
        yield b"first"
        await go_on.wait()
        yield b"second"

    async def collect() -> list[bytes]:
        sent = []
        async with aclosing(EventStream(events(), ping_seconds=0.01).events) as stream:
            async for part in stream:
                sent.append(part)
                if sent.count(PING) == 3:
                    go_on.set()
        return sent

    first, *pings, second = asyncio.run(collect())
    assert (first, second) == (b"first", b"second")
    assert pings[:3] == [PING] * 3
    assert set(pings) == {PING}


def test_closing_in_a_pause_closes_the_events_at_once() -> None:
    closed = []

    async def events() -> AsyncGenerator[bytes]:
        try:
            await asyncio.Event().wait()
            yield b"never"
        finally:
            closed.append(True)

    async def leave() -> None:
        async with aclosing(EventStream(events(), ping_seconds=0.01).events) as stream:
            assert await anext(stream) == PING
        assert closed

    asyncio.run(leave())


def test_a_stream_that_fails_before_its_first_word_is_a_plain_error() -> None:
    """Clients read the status before they read events."""

    async def failing() -> AsyncGenerator[Delta]:
        yield Completion("", (), FinishReason.ERROR, stats(), error="no room", code="out_of_memory")

    asked: Any = SimpleNamespace(stream=True, include_usage=False, filling="messages")
    staying: Any = SimpleNamespace(receive=lambda: asyncio.Event().wait())
    with pytest.raises(ApiError) as failed:
        asyncio.run(respond(asked, [failing()], [], staying))
    assert (failed.value.failure.status, failed.value.failure.code) == (500, "out_of_memory")
