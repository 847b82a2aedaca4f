"""Job: one download in a thread of its own, its state and its speed."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from filelock import Timeout

from app.models.downloads.fetch import Source, fetch
from app.models.downloads.manifest import Manifest
from app.models.downloads.partial_file import PartialFile
from app.models.downloads.staging import CHECK_EVERY, Space, Staging, cached_blob, link_or_copy
from app.models.hub.client import Hub
from app.models.hub.repository import RemoteFile

WINDOW = 10.0  # seconds that the speed is an average of
STEP = 0.25  # seconds between two samples, at least


class TransferRate:
    """Bytes over the last seconds; for one thread that adds and others that read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._total = 0

    def add(self, count: int) -> None:
        """``count`` bytes came over the network."""
        self._total += count
        now = self._clock()
        if now - self._samples[-1][0] >= STEP:
            self._samples.append((now, self._total))
            while now - self._samples[0][0] > WINDOW:
                self._samples.popleft()

    def speed(self) -> float:
        """Bytes per second over the window, up to now, so that it falls when nothing comes."""
        started, before = self._samples[0]
        passed = self._clock() - started
        return (self._total - before) / passed if passed > 0 else 0.0

    def seconds_left(self, rest: int) -> float | None:
        """How long ``rest`` bytes take at this speed; None while nothing comes."""
        speed = self.speed()
        return rest / speed if speed > 0 else None


class State(StrEnum):
    """The state of a download."""

    QUEUED = "queued"
    WAITING = "waiting"  # another process downloads the same model
    CHECKING = "checking"  # what is here already is hashed
    DOWNLOADING = "downloading"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"  # it can be resumed
    CANCELLED = "cancelled"


ENDED = frozenset({State.PAUSED, State.DONE, State.FAILED, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One download at one moment; sizes in bytes, speed in bytes per second."""

    name: str
    state: State
    done: int
    total: int
    speed: float = 0.0
    seconds_left: float | None = None  # None while nothing comes
    file: str | None = None  # the one in work
    error: str | None = None  # one sentence, with FAILED
    gated: bool = False  # it failed because a token or accepted terms are missing

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / self.total if self.total else 1.0


LOCK_WAIT = 0.2  # seconds between looks at a lock that another process holds


class Stopped(Exception):
    """The download was paused or cancelled."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """What every job works with; ``caches`` are huggingface_hub's."""

    hub: Hub
    models_folder: Path
    space: Space
    caches: Sequence[Path] = ()


class Job:
    """Runs once; another try of the same order is another job."""

    def __init__(self, order: Manifest, around: JobContext) -> None:
        self.order = order
        self._around = around
        self._staging = Staging(around.models_folder, order.name)
        self._source = Source(around.hub, order.repo, order.commit)
        self._stop, self._discard = threading.Event(), False
        self._meter = TransferRate()
        self._state = State.QUEUED
        self._file: str | None = None
        self._done = order.total - self._staging.remaining(order)
        self._until_check = 0

    def run(self) -> None:
        """Download and install; raises Stopped, DownloadFailed, HubError, OSError."""
        lock = self._staging.lock()
        while True:
            try:
                lock.acquire(timeout=0)
                break
            except Timeout:
                self._state = State.WAITING
                self.wait(LOCK_WAIT)
        try:
            self._download()
        except Stopped:
            if self._discard:
                self._staging.discard()
            raise
        finally:
            lock.release()

    def stop(self, *, discard: bool) -> None:
        """Let ``run`` raise Stopped at the next piece; ``discard`` deletes what arrived."""
        self._discard = self._discard or discard
        self._stop.set()

    def snapshot(self, state: State | None = None, error: str | None = None) -> Snapshot:
        """This job now; a given ``state`` is shown in place of its own."""
        shown, total = state or self._state, self.order.total
        moving = shown is State.DOWNLOADING
        return Snapshot(
            name=self.order.name,
            state=shown,
            done=total if shown is State.DONE else self._done,
            total=total,
            speed=self._meter.speed() if moving else 0.0,
            seconds_left=self._meter.seconds_left(total - self._done) if moving else None,
            file=self._file if moving else None,
            error=error,
        )

    def received(self, count: int) -> None:
        """Watch: bytes came over the network."""
        self._state = State.DOWNLOADING
        self._done += count
        self._meter.add(count)
        self._until_check -= count
        self._check_stop()
        if self._until_check <= 0:
            self._until_check = CHECK_EVERY
            self._around.space.check(self.order.name, self.order.total - self._done)

    def recalled(self, count: int) -> None:
        """Watch: bytes were here already, or are thrown away."""
        self._done += count
        self._check_stop()

    def wait(self, seconds: float) -> None:
        """Watch: sleep, or raise Stopped."""
        self._stop.wait(seconds)
        self._check_stop()

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _download(self) -> None:
        if self._staging.installed.exists():  # by another process, while this one waited
            self._staging.discard()
            return
        self._state = State.CHECKING
        self._done = 0  # counted again as it is checked
        self._staging.write(self.order)
        for file in self.order.files:
            self._check_stop()
            self._file, before = file.name, self._done
            self._get(file)
            self._done = before + file.size
        self._staging.install(self.order)

    def _get(self, file: RemoteFile) -> None:
        if self._staging.present(file):
            return
        place = self._staging.place(file)
        if blob := cached_blob(self._around.caches, self.order.repo, file):
            link_or_copy(blob, place)
            return
        if not self._until_check:
            self._around.space.check(self.order.name, self._staging.remaining(self.order))
            self._until_check = CHECK_EVERY
        fetch(self._source, PartialFile(place, file), self)
