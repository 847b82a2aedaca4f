"""A stream of events that have names tells of its own failures."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from app.request import Delta, Piece
from app.server.named_events import _sent


class Broken:
    """Cannot even begin."""

    def first(self) -> Iterator[dict[str, Any]]:
        yield {"type": "created"}
        raise ValueError

    def failed(self, failure: Any) -> dict[str, Any]:
        return {"type": "failed", "message": failure.message}


async def nothing(closed: list[bool]) -> AsyncGenerator[Delta]:
    try:
        yield Piece("a", (1,), 0, 0)
        yield Piece("b", (2,), 0, 0)
    finally:
        closed.append(True)


def test_a_stream_that_breaks_off_at_its_beginning_says_so_and_ends_its_answer() -> None:
    """It was torn without an event, and the answer behind it went on."""
    closed: list[bool] = []

    async def told() -> list[bytes]:
        deltas = nothing(closed)
        return [part async for part in _sent(Broken(), await anext(deltas), deltas)]  # type: ignore[arg-type]

    parts = asyncio.run(told())
    assert [part.split(b"\n")[0] for part in parts] == [b"event: created", b"event: failed"]
    assert b"log of the server" in parts[-1]
    assert closed == [True]
