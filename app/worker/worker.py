"""EngineWorker: one model in a process of its own, as async iterators of events."""

import asyncio
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace

from app.errors import WorkerCrashed
from app.worker import engine_process
from app.worker.child import EngineChild, Entry, EventStream
from engine.request import Calibration, Done, Event, GenerationRequest, ModelFacts, ModelSpec

SHORTEST_LOOK = 0.01  # seconds between two looks at whether the engine is idle


class EngineWorker:
    """Starts the engine's process when it is needed, and again after it ended.

    After ``keep_alive`` idle seconds the process ends, which unloads the model; None: it stays.
    """

    def __init__(
        self,
        spec: ModelSpec,
        entry: Entry = engine_process.main,
        level: str = "WARNING",
        keep_alive: float | None = None,
        measured: Callable[[Calibration], object] = bool,
    ) -> None:
        """``level``: log records of the engine from this level on come to the app's log.

        ``measured`` is called in a thread with what the engine measured at its load or after it.
        """
        self._spec, self._entry = spec, entry
        self._report = measured
        self._level, self._keep_alive = level, keep_alive
        self._lock = threading.Lock()  # one start at a time, whatever loop or thread asks
        self._child: EngineChild | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the engine, None before the first start."""
        return self._child.pid if self._child else None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    async def start(self) -> ModelFacts:
        """Load the model; raises ModelUnusable or WorkerCrashed."""
        child = await asyncio.to_thread(self._started)
        ready = asyncio.wrap_future(child.ready)
        ready.add_done_callback(_retrieve)
        return await asyncio.shield(ready)  # a caller that gives up does not stop the load

    def generate(self, request: GenerationRequest) -> "Generation":
        """Events of ``request``, Done last; raises InvalidRequest before, WorkerCrashed after some.

        A dead process is started again first, so one crash costs one answer.
        """
        return Generation(self, request)

    async def close(self) -> None:
        """End the process within five seconds; running generations raise WorkerCrashed."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._lock:
            self._closed, child = True, self._child
        if child is not None:
            child.end()

    async def submit(
        self, request: GenerationRequest, stream: EventStream
    ) -> tuple[EngineChild, int]:
        """The process that took ``request``, and its key there."""
        await self.start()
        with self._lock:  # so that the process is not unloaded before it has the request
            child = self._living_child()
            return child, child.submit(request, stream)

    def _started(self) -> EngineChild:
        """Runs in a thread: the process may be forked off one that still imports."""
        with self._lock:
            return self._living_child()

    def _living_child(self) -> EngineChild:
        """The process, started if need be; called with the lock held.

        Loading, which takes seconds, is awaited as ``ready``.
        """
        if self._closed:
            raise WorkerCrashed("the engine is closed; open the model again to continue")
        if self._child is None or not self._child.alive:
            self._child = EngineChild(self._spec, self._entry, self._level, self._measured)
            if self._keep_alive is not None:
                arguments = (self._child, self._keep_alive)
                threading.Thread(target=self._unload_when_idle, args=arguments, daemon=True).start()
        return self._child

    def _measured(self, calibration: Calibration) -> None:
        """A process that is started again need not measure it again."""
        self._spec = replace(self._spec, calibration=calibration)
        self._report(calibration)

    def _unload_when_idle(self, child: EngineChild, keep_alive: float) -> None:
        """Runs in a thread of its own until ``child`` has ended."""
        while not child.wait_for_end(max(keep_alive - child.idle_seconds, SHORTEST_LOOK)):
            with self._lock:
                if child.idle_seconds < keep_alive:
                    continue  # a request came meanwhile
                if self._child is child:
                    self._child = None
            child.end()


class Generation:
    """The events of one request; closing or dropping it cancels the request."""

    def __init__(self, worker: EngineWorker, request: GenerationRequest) -> None:
        self._worker, self._request = worker, request
        self._stream: EventStream | None = None
        self._cancel: weakref.finalize[[int], Generation] | None = None  # once it is under way
        self._cancelled = self._ended = False

    def __aiter__(self) -> "Generation":
        """Itself: events come once."""
        return self

    async def __anext__(self) -> Event:
        """The next event; StopAsyncIteration after Done."""
        if self._ended:
            raise StopAsyncIteration
        stream = self._stream or await self._open()
        item = await stream.items.get()
        if isinstance(item, Done | Exception):
            self._finish()
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self) -> None:
        """End the request soon; events continue until Done(CANCELLED)."""
        self._cancelled = True
        if self._cancel is not None:
            self._cancel()

    async def aclose(self) -> None:
        """Cancel, and give no more events."""
        self._ended = True
        self.cancel()

    async def _open(self) -> EventStream:
        stream = EventStream(asyncio.get_running_loop())
        try:
            child, key = await self._worker.submit(self._request, stream)
        except Exception:
            self._ended = True
            raise
        self._stream = stream
        self._cancel = weakref.finalize(self, child.cancel, key)  # runs once, at the latest when
        self._cancel.atexit = False  # the generation is dropped
        if self._cancelled:
            self._cancel()
        return stream

    def _finish(self) -> None:
        self._ended = True
        if self._cancel is not None:
            self._cancel.detach()  # nothing is left to cancel


def _retrieve(future: asyncio.Future[ModelFacts]) -> None:
    """Look at the result, or asyncio complains when its only reader has given up."""
    if not future.cancelled():
        future.exception()
