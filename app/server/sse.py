"""Server-sent events, and work that ends when its client is gone."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"  # a comment: clients skip it, a dead connection shows
PING_SECONDS = 15.0


class ClientLeftError(ConnectionError):
    """Nobody waits for the answer any more."""


def event(body: Mapping[str, Any], name: str = "") -> bytes:
    """``body`` as one event, with a name or without."""
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


async def attend(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``; it is cancelled, and ClientLeftError raised, when the client leaves."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_departure(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeftError
        return working.result()
    finally:
        await drop(working, leaving)


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def drop(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs and wait until it has cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _with_pings(events: AsyncGenerator[bytes], seconds: float) -> AsyncGenerator[bytes]:
    """The events, and a comment whenever none came for ``seconds``."""
    async with aclosing(events):
        while True:
            coming = asyncio.ensure_future(anext(events, None))
            try:
                while not (await asyncio.wait({coming}, timeout=seconds))[0]:
                    yield PING
            finally:
                await drop(coming)
            if (arrived := coming.result()) is None:
                return
            yield arrived


class EventStream(Response):
    """A response of events; the generator behind it is closed as soon as the client is gone."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], ping_seconds: float = PING_SECONDS) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.events = _with_pings(events, ping_seconds)

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end or the client leaves."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_departure(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await drop(sending, leaving)

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self.events) as events:
            async for chunk in events:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
