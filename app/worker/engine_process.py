"""The engine's own process: requests come down a pipe, events go up."""

import gc
import os
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import format_exc
from typing import Protocol

from app.worker.messages import (
    Broken,
    Cancel,
    Down,
    Failed,
    Progress,
    Ready,
    Refused,
    Stop,
    Submit,
    Unusable,
)
from app.worker.with_parent import end_with_parent
from engine.errors import ContextOverflow, EngineError
from engine.request import Done, Event, GenerationRequest, ModelFacts, ModelSpec


class Engine(Protocol):
    """What the loop needs of an engine; ``engine.build.build`` makes the real one."""

    listen: Callable[[], object]  # called inside long passes

    @property
    def facts(self) -> ModelFacts:
        """What the engine says of itself."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        ...

    def submit(self, request: GenerationRequest) -> int:
        """Take a request; raises InvalidRequest."""
        ...

    def cancel(self, request_id: int) -> None:
        """End a request with the next step."""
        ...

    def step(self) -> list[tuple[int, Event]]:
        """Run one pass; the events of every request in it."""
        ...


def main(connection: Connection, spec: ModelSpec) -> None:
    """Entry of the child process: build the real engine and serve it.

    What it holds the system takes back at once; Python, module by module, takes most of a second,
    for which a stop and a change of models would wait.
    """
    serve(connection, spec, build_engine)
    os._exit(0)  # nothing is left to be written: standard error keeps no line back


def build_engine(spec: ModelSpec) -> Engine:
    """The real engine; torch is imported here and nowhere in the app's own process.

    Nothing of what is imported becomes garbage, and looking for some took 0.3 of the 2 seconds.
    """
    gc.disable()
    try:
        from app.text.token_bytes import FileSpeller
        from engine.build import build
    finally:
        gc.enable()
    return build(spec, FileSpeller(Path(spec.folder)))


def serve(connection: Connection, spec: ModelSpec, build: Callable[[ModelSpec], Engine]) -> None:
    """Load, then serve until Stop or until the app is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the app's to handle
    end_with_parent()  # a load, or a long pass, would keep memory for seconds that nobody waits for
    try:
        _serve(connection, spec, build)
    except (EOFError, ConnectionError):  # the app is gone, so the engine ends too
        return
    except Exception as error:  # the loop's edge: sent up, logged there
        with suppress(OSError):
            connection.send(Broken(_sentence(error), format_exc()))
        raise SystemExit(1) from error


def _serve(connection: Connection, spec: ModelSpec, build: Callable[[ModelSpec], Engine]) -> None:
    try:
        engine = build(spec)
    except EngineError as error:
        connection.send(Unusable(str(error)))
        return
    gc.collect()
    gc.freeze()  # what was loaded stays until the end; looking through it again takes 0.1 ms a pass
    try:
        connection.send(Ready(engine.facts))
        _Loop(connection, engine).run()
    finally:
        gc.unfreeze()  # or libraries complain at the exit of what was never collected


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class _Loop:
    """Receive what came, step while there is work, send what happened."""

    def __init__(self, connection: Connection, engine: Engine) -> None:
        self._connection, self._engine = connection, engine
        self._keys: dict[int, int] = {}  # engine's request id -> key of the pipe
        self._requests: dict[int, int] = {}  # and back
        self._early: deque[Submit | Stop] = deque()  # came during a pass, and can wait for its end
        self._gone = False  # the app, during a pass
        engine.listen = self._hear

    def run(self) -> None:
        """Until Stop; EOFError when the app is gone."""
        while self._receive():
            for request_id, event in self._engine.step():
                self._report(request_id, event)

    def _receive(self) -> bool:
        """Handle waiting messages, the first one awaited when idle; False on Stop."""
        while self._early or self._connection.poll(0 if self._engine.busy else None):
            message: Down = self._early.popleft() if self._early else self._connection.recv()
            if isinstance(message, Stop):
                return False
            self._handle(message)
        if self._gone:
            raise EOFError
        return True

    def _hear(self) -> None:
        """A cancel ends a prompt in the middle of its pass; everything else waits."""
        try:
            while not self._gone and self._connection.poll(0):
                message: Down = self._connection.recv()
                if isinstance(message, Cancel):
                    self._handle(message)
                else:
                    self._early.append(message)
        except (EOFError, ConnectionError):  # told by ``_receive``: here C code would be the caller
            self._gone = True

    def _handle(self, message: Submit | Cancel) -> None:
        match message:
            case Submit(key, request):
                self._submit(key, request)
            case Cancel(key):
                if key in self._requests:  # else it ended while the message was under way
                    self._engine.cancel(self._requests[key])

    def _submit(self, key: int, request: GenerationRequest) -> None:
        try:
            request_id = self._engine.submit(request)
        except ContextOverflow as error:
            self._connection.send(Refused(key, str(error), (error.needed, error.holds)))
        except EngineError as error:
            self._connection.send(Refused(key, str(error)))
        except Exception as error:  # noqa: BLE001 - the loop's edge: sent up, logged there
            self._connection.send(Failed(key, _sentence(error), format_exc()))
        else:
            self._keys[request_id], self._requests[key] = key, request_id

    def _report(self, request_id: int, event: Event) -> None:
        key = self._keys[request_id]
        if isinstance(event, Done):
            del self._keys[request_id], self._requests[key]
        self._connection.send(Progress(key, event))
