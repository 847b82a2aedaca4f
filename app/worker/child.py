"""The app's end of one engine process: sends requests down, puts events into their streams."""

import asyncio
import itertools
import logging
import multiprocessing
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from app.environment import without_network
from app.errors import RequestFailed, WorkerCrashed
from app.sandbox import interrupts_blocked
from app.worker import messages
from engine.errors import ContextOverflow, InvalidRequest, ModelUnusable
from engine.request import Calibration, Done, Event, GenerationRequest, ModelFacts, ModelSpec

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

log = logging.getLogger(__name__)

Entry = Callable[[Connection, ModelSpec, str], None]

GRACE_SECONDS = 2.0  # for the engine to end by itself
TERM_SECONDS = 1.0  # after SIGTERM, before SIGKILL
ENDED_ON_PURPOSE = (0, -signal.SIGTERM)  # exit codes that need no line in the log
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")  # of NVIDIA's and AMD's GPUs
AHEAD = (  # modules that are imported once for all engines
    "app.worker.engine_process",
    "app.text.token_bytes",
    "engine.models.gguf.target",
    "engine.build",
)


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events of one request, from the reader thread to the event loop of the caller."""

    loop: asyncio.AbstractEventLoop
    items: asyncio.Queue[Event | Exception] = field(default_factory=asyncio.Queue)

    def push(self, items: Sequence[Event | Exception]) -> None:
        """Called in the reader thread; wakes the loop once."""
        with suppress(RuntimeError):  # the loop has been closed
            self.loop.call_soon_threadsafe(self._put, items)

    def _put(self, items: Sequence[Event | Exception]) -> None:
        for item in items:
            self.items.put_nowait(item)


def import_ahead() -> None:
    """Begin to import torch in a process that engines are forked off later; returns at once.

    It takes 1.5 to 2 seconds, and a GGUF file then loads in one.
    """
    if _forks():
        with interrupts_blocked(), without_network():
            multiprocessing.get_context("forkserver").set_forkserver_preload([*AHEAD])
            forkserver.ensure_running()


def _forks() -> bool:
    """Whether libraries survive a fork: on Linux, without the driver of a GPU, which may not."""
    return sys.platform == "linux" and not any(Path(driver).exists() for driver in _DRIVERS)


def _start(entry: Entry, spec: ModelSpec, level: str) -> tuple[BaseProcess, Connection]:
    """A process that runs ``entry``, and this end of its pipe; takes until its imports are done."""
    if _forks() and entry.__module__ in AHEAD:
        import_ahead()
        with suppress(EOFError, OSError):  # its imports failed: let them fail where it is told
            return _start_in(multiprocessing.get_context("forkserver"), entry, spec, level)
    return _start_in(multiprocessing.get_context("spawn"), entry, spec, level)


def _start_in(
    context: "ForkServerContext | SpawnContext", entry: Entry, spec: ModelSpec, level: str
) -> tuple[BaseProcess, Connection]:
    connection, theirs = context.Pipe()
    process = context.Process(
        target=entry, args=(theirs, spec, level), name="slipstream-engine", daemon=True
    )
    with interrupts_blocked(), theirs:  # closed here, or its end would not end the pipe
        process.start()
    return process, connection


class EngineChild:
    """One process, from its start to its end; two threads move messages, none blocks the loop."""

    def __init__(
        self,
        spec: ModelSpec,
        entry: Entry,
        level: str,
        measured: Callable[[Calibration], object] = bool,
    ) -> None:
        """``level``: log records of the process from this level on come to the app's log.

        ``measured`` is called in a thread with what the process measured.
        """
        self._measured = measured
        self._name = spec.name
        self._keys = itertools.count(1)
        self._streams: dict[int, EventStream] = {}
        self._idle_since = time.monotonic()  # when the model was loaded or the last request ended
        self._lock = threading.Lock()  # guards _streams, _ahead and _end_reason
        self._ahead: int | None = None  # of the newest request, if it only reads ahead
        self._end_reason: str | None = None  # set once, at the end: how the process ended
        self._outgoing: queue.SimpleQueue[messages.Down | None] = queue.SimpleQueue()
        self._broken: str | None = None
        self._closing = False
        self._ended = threading.Event()
        self.ready: Future[ModelFacts] = Future()
        self._process, self._connection = _start(entry, spec, level)
        for work in (self._read, self._write):
            threading.Thread(target=work, name="slipstream-engine-pipe", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process id, for logs and tests."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether requests can still be answered."""
        return self._end_reason is None

    @property
    def idle_seconds(self) -> float:
        """Since the model was loaded or the last request ended; 0 while one runs."""
        with self._lock:
            busy = self._streams or not self.ready.done()
            return 0.0 if busy else time.monotonic() - self._idle_since

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until the process has ended, at most ``seconds``; whether it has."""
        return self._ended.wait(seconds)

    def submit(self, request: GenerationRequest, stream: EventStream) -> int:
        """Send a request down; raises WorkerCrashed when the process has ended.

        It ends reading ahead in the middle of a pass.
        """
        key = next(self._keys)
        with self._lock:
            if self._end_reason is not None:
                raise WorkerCrashed(self._end_reason)
            self._streams[key] = stream
            ahead, self._ahead = self._ahead, key if request.ahead else None
        if ahead is not None:
            self.cancel(ahead)
        self._outgoing.put(messages.Submit(key, request))
        return key

    def cancel(self, key: int) -> None:
        """End a request; its Done still comes."""
        self._outgoing.put(messages.Cancel(key))

    def end(self) -> None:
        """End the process, by force if needed; blocks for a few seconds at most."""
        self._closing = True
        self._outgoing.put(messages.Stop())
        if self.ready.done() and self._ended.wait(GRACE_SECONDS):
            return
        self._process.terminate()  # a process that still loads reads no messages
        if not self._ended.wait(TERM_SECONDS):
            self._process.kill()
            self._ended.wait(TERM_SECONDS)

    def _write(self) -> None:
        with suppress(OSError):  # the reader sees the same end of the pipe and says so
            while (message := self._outgoing.get()) is not None:
                self._connection.send(message)

    def _read(self) -> None:
        try:
            with suppress(EOFError, OSError):
                while True:
                    self._dispatch(self._connection.recv())
        finally:  # whatever happened, no request waits for ever
            self._reap()
            self._refuse_all(self._how_it_ended())
            self._outgoing.put(None)
            self._connection.close()
            self._ended.set()

    def _dispatch(self, message: messages.Up) -> None:
        match message:
            case messages.Ready() | messages.Measured() | messages.Unusable():
                self._note_load(message)
            case messages.Progress(events):
                self._push_all(events)
            case messages.Refused(key, text, overflow):
                self._push(key, ContextOverflow(*overflow) if overflow else InvalidRequest(text))
            case messages.Failed(key, text, details):
                log.error("the engine failed on a request\n%s", details)
                self._push(key, RequestFailed(f"the engine failed on this request ({text})"))
            case messages.Logged(level, logger, text):
                logging.getLogger(logger).log(level, "%s", text)
            case messages.Broken(text, details):
                log.error("the engine broke\n%s", details)
                self._broken = text

    def _note_load(self, news: messages.Ready | messages.Measured | messages.Unusable) -> None:
        match news:
            case messages.Ready(facts):
                if facts.calibration is not None:
                    self._measured(facts.calibration)
                self._idle_since = time.monotonic()
                self.ready.set_result(facts)
            case messages.Measured(calibration):
                self._measured(calibration)
            case messages.Unusable(text):
                self.ready.set_exception(ModelUnusable(text))

    def _push_all(self, events: Sequence[tuple[int, Event]]) -> None:
        for key in dict.fromkeys(key for key, _ in events):
            self._push(key, *(event for its, event in events if its == key))

    def _push(self, key: int, *items: Event | Exception) -> None:
        with self._lock:
            last = isinstance(items[-1], Done | Exception)
            stream = self._streams.pop(key, None) if last else self._streams.get(key)
            self._idle_since = time.monotonic()
        if stream is not None:
            stream.push(items)

    def _reap(self) -> None:
        """Leave no zombie, and no process that closed its pipe but hangs."""
        self._process.join(GRACE_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    def _refuse_all(self, reason: str) -> None:
        """No request can be answered any more: fail those that wait and those that will come."""
        with self._lock:
            self._end_reason = reason
            streams = list(self._streams.values())
            self._streams.clear()
        for stream in streams:
            stream.push([WorkerCrashed(reason)])
        if not self.ready.done():
            self.ready.set_exception(WorkerCrashed(reason))
        if not self._closing and self._process.exitcode not in ENDED_ON_PURPOSE:
            log.error("engine process %s: %s", self.pid, reason)

    def _how_it_ended(self) -> str:
        if self._closing:
            return "the engine was closed before the answer was complete"
        if not self.ready.done():
            return (
                f"the engine stopped while it loaded {self._name}: {self._cause()}; "
                "it starts again with the next request"
            )
        return (
            f"the engine stopped while it answered: {self._cause()}; any text received so far is "
            "kept, and the engine starts again with the next request"
        )

    def _cause(self) -> str:
        code = self._process.exitcode or 0
        if self._broken is not None:
            return self._broken
        if code == -signal.SIGKILL:
            return "its process was killed (SIGKILL; often the machine ran out of memory)"
        if code < 0:
            return f"its process was ended by {_signal_name(-code)}"
        return f"its process ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
