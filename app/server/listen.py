"""The HTTP server itself: it gives up on half requests and clients that left, and stops within seconds."""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from socket import socket
from types import FrameType

import h11
import uvicorn
from fastapi import FastAPI
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from app.keys.opening import Tls
from app.server.errors import Failure

HEAD_SECONDS = 5.0
BODY_SECONDS = 10.0
# longer than clients keep idle connections: none is closed under a request
KEEP_ALIVE_SECONDS = 120
GRACE_SECONDS = 1  # a page that is open never ends its own connection
MAX_HEAD = 64 * 2**10
TICK_SECONDS = 0.5  # the date of an answer is at most as old


class PunctualH11(H11Protocol):
    """HTTP/1.1 that closes a connection whose request does not arrive in time.

    uvicorn itself waits for ever, so a few sockets that send half a request would take every
    place. The time runs from the start of the head or body, however slowly it drips.
    """

    head_seconds, body_seconds = HEAD_SECONDS, BODY_SECONDS
    _seconds = 0.0  # that what is missing may take; 0: nothing is missing
    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Start waiting for the head."""
        super().connection_made(transport)
        self._wait(self.head_seconds)

    @override
    def data_received(self, data: bytes) -> None:
        """Take the data, then see what is still missing.

        uvicorn stops reading while the next request waits, and then sees no client leave.
        """
        super().data_received(data)
        self._wait(self._missing())
        if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) <= MAX_HEAD:
            self.flow.resume_reading()

    @override
    def eof_received(self) -> None:
        """The client left, perhaps in the middle of an answer that it no longer takes."""
        if self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY):
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.flow.resume_writing()

    @override
    def send_400_response(self, msg: str) -> None:
        """What is no request is refused in the form of everything else."""
        failure = Failure(400, f"this is no HTTP/1.1, or its head has more than {MAX_HEAD} bytes")
        response = failure.response({"path": "", "headers": []})
        headers = [*response.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._wait(0.0)
        super().connection_lost(exc)

    def _missing(self) -> float:
        if self.conn.their_state is h11.SEND_BODY:
            return self.body_seconds
        half_a_head = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        return self.head_seconds if half_a_head else 0.0

    def _wait(self, seconds: float) -> None:
        if seconds == self._seconds:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._seconds = seconds
        self._deadline = self.loop.call_later(seconds, self._give_up) if seconds else None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """uvicorn that says when it answers, and returns after a signal instead of dying of it."""

    def __init__(
        self, app: FastAPI, ready: Callable[[], None] = lambda: None, tls: Tls | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.key,
            http=PunctualH11,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        super().__init__(config)
        self._ready = ready
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # once it answers

    @override
    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Open for requests."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._ready()

    @override
    async def main_loop(self) -> None:
        """Wake up twice a second where uvicorn does ten times: that took 1.6 % of a core while idle."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stopping.wait()

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal ends the wait between two looks."""
        super().handle_exit(sig, frame)
        self.stop()

    def stop(self) -> None:
        """Let ``serve`` come to its end; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._stopping.set)

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on a signal; what comes after ``serve`` still runs, as it must clean up."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals go to the main thread only
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
