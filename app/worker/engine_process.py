"""The engine's own process: requests come down a pipe, events go up."""

import gc
import logging
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from time import perf_counter
from traceback import format_exc
from typing import TYPE_CHECKING

from typing_extensions import override

from app.environment import hide_network
from app.sandbox import end_with_parent
from app.worker import messages
from engine.errors import ContextOverflow, EngineError
from engine.request import Done, Event, GenerationRequest, ModelSpec

if TYPE_CHECKING:
    from engine.engine import Engine

QUIET_SECONDS = 1.0  # without a message, before the engine measures what the load left out
TOGETHER = 0.04  # seconds: what shorter passes give within them is sent as one message


def main(connection: Connection, spec: ModelSpec, level: str) -> None:
    """Entry of the child process: build the real engine and serve it.

    The system frees its memory at once; Python's own exit takes most of a second, for which a stop
    and a change of models would wait.
    """
    gc.freeze()  # what was imported before the fork stays shared: collecting writes to every object
    hide_network()
    serve(connection, spec, build_engine, level)
    os._exit(0)  # nothing is left to be written: standard error holds no line back


def build_engine(spec: ModelSpec) -> "Engine":
    """The real engine; torch is imported here and nowhere in the app's own process.

    Imports make no garbage, and collecting it took 0.3 of the 2 seconds.
    """
    gc.disable()
    try:
        from app.text.token_bytes import FileSpeller
        from engine.build import build
    finally:
        gc.enable()
    return build(spec, FileSpeller(Path(spec.folder)))


def serve(
    connection: Connection,
    spec: ModelSpec,
    build: Callable[[ModelSpec], "Engine"],
    level: str = "WARNING",
    together: float = TOGETHER,
) -> None:
    """Load, then serve until Stop or until the app is gone; log records of ``level`` are sent up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the app handles Ctrl-C
    end_with_parent()  # a load, or a long pass, would keep memory for seconds
    pipe = _Pipe(connection)
    handler, root = _PipeHandler(pipe), logging.getLogger()
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        _serve(pipe, spec, build, together)
    except (EOFError, ConnectionError):  # the app is gone, so the engine ends too
        return
    except Exception as error:  # the loop's edge: sent up, logged there
        with suppress(OSError):
            pipe.send(messages.Broken(_sentence(error), format_exc()))
        raise SystemExit(1) from error
    finally:
        root.removeHandler(handler)
        root.setLevel(level_before)


def _serve(
    pipe: "_Pipe", spec: ModelSpec, build: Callable[[ModelSpec], "Engine"], together: float
) -> None:
    try:
        engine = build(spec)
    except EngineError as error:
        pipe.send(messages.Unusable(str(error)))
        return
    gc.collect()
    gc.freeze()  # the model stays until the end; collecting over it takes 0.1 ms a pass
    try:
        pipe.send(messages.Ready(engine.facts))
        _Loop(pipe, engine, together).run()
    finally:
        gc.unfreeze()  # or libraries complain at the exit about what was never collected


class _Pipe:
    """The engine's end of the pipe; several threads may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, Lock()
        self.wait = connection.poll
        self.has_message: Callable[[], bool] = partial(connection.poll, 0)
        if sys.platform != "win32":  # asking takes a tenth of the time where a poll object is kept
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            self.has_message = lambda: bool(poll.poll(0))

    def send(self, message: messages.Up) -> None:
        with self._lock:
            self._connection.send(message)

    def receive(self) -> messages.Down:
        message: messages.Down = self._connection.recv()
        return message


class _PipeHandler(logging.Handler):
    """Sends log records to the app, tracebacks included."""

    def __init__(self, pipe: _Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    @override
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the app is gone
            self._pipe.send(messages.Logged(record.levelno, record.name, self.format(record)))


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class _Events:
    """Events on their way up: each message wakes the app, which takes a core from the next pass."""

    def __init__(self, pipe: _Pipe, together: float) -> None:
        self._pipe, self._together, self._sent = pipe, together, 0.0
        self._waiting: list[tuple[int, Event]] = []

    def add(self, key: int, event: Event) -> None:
        self._waiting.append((key, event))

    def send_due(self, seconds: float) -> None:
        """Send them, unless another step that takes the ``seconds`` of the last one ends soon enough."""
        ended = any(isinstance(event, Done) for _, event in self._waiting)
        if ended or perf_counter() + seconds > self._sent + self._together:
            self.send()

    def send(self) -> None:
        if self._waiting:
            waiting, self._waiting = tuple(self._waiting), []
            self._pipe.send(messages.Progress(waiting))
            self._sent = perf_counter()


class _Loop:
    """Receive messages, step while there is work, send events."""

    def __init__(self, pipe: _Pipe, engine: "Engine", together: float) -> None:
        self._pipe, self._engine, self._events = pipe, engine, _Events(pipe, together)
        self._keys: dict[int, int] = {}  # engine's request id -> key of the pipe
        self._requests: dict[int, int] = {}  # and back
        # what came during a pass and can wait for its end
        self._early: deque[messages.Submit | messages.Stop] = deque()
        self._gone = False  # the app, during a pass
        self._left = engine.later
        engine.listen = self._listen

    def run(self) -> None:
        """Until Stop; EOFError when the app is gone."""
        try:
            while self._receive():
                started = perf_counter()
                for request_id, event in self._engine.step():
                    self._report(request_id, event)
                self._events.send_due(perf_counter() - started)
        finally:
            self._events.send()

    def _receive(self) -> bool:
        """Handle waiting messages; wait for one when idle. False on Stop."""
        pipe = self._pipe
        while self._early or (pipe.has_message() if self._engine.busy else self._wait()):
            message = self._early.popleft() if self._early else pipe.receive()
            if isinstance(message, messages.Stop):
                return False
            self._events.send()  # a prompt takes longer than the last step did
            self._handle(message)
        if self._gone:
            raise EOFError
        return True

    def _wait(self) -> bool:
        """Until a message comes; the engine measures meanwhile what its load left out."""
        pipe, left = self._pipe, self._left
        if left is not None and not pipe.wait(QUIET_SECONDS):
            found = left.run(self._is_asked)
            if found is not None:
                pipe.send(messages.Measured(found))
            if found is not None or not self._is_asked():  # it could not be measured
                self._left = None
        return bool(self._early) or pipe.wait(None)

    def _is_asked(self) -> bool:
        """Whether a message waits; a pass that was measured may have received it already."""
        return bool(self._early) or self._gone or self._pipe.has_message()

    def _listen(self) -> None:
        """A cancel ends a prompt in the middle of its pass; other messages wait."""
        try:
            while not self._gone and self._pipe.has_message():
                message = self._pipe.receive()
                if isinstance(message, messages.Cancel):
                    self._handle(message)
                else:
                    self._early.append(message)
        except (EOFError, ConnectionError):  # raised by ``_receive``: the caller here may be C code
            self._gone = True

    def _handle(self, message: messages.Submit | messages.Cancel) -> None:
        match message:
            case messages.Submit(key, request):
                self._submit(key, request)
            case messages.Cancel(key):
                if key in self._requests:  # else it ended while the message was under way
                    self._engine.cancel(self._requests[key])

    def _submit(self, key: int, request: GenerationRequest) -> None:
        try:
            request_id = self._engine.submit(request)
        except ContextOverflow as error:
            self._pipe.send(messages.Refused(key, str(error), (error.needed, error.holds)))
        except EngineError as error:
            self._pipe.send(messages.Refused(key, str(error)))
        except Exception as error:  # noqa: BLE001 - the loop's edge: sent up, logged there
            self._pipe.send(messages.Failed(key, _sentence(error), format_exc()))
        else:
            self._keys[request_id], self._requests[key] = key, request_id

    def _report(self, request_id: int, event: Event) -> None:
        key = self._keys[request_id]
        if isinstance(event, Done):
            del self._keys[request_id], self._requests[key]
        self._events.add(key, event)
