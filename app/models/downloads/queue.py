"""Downloads: a queue that runs several at once, watched and controlled from any thread."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

from app.errors import AccessDenied, AppError, DownloadFailed
from app.models.downloads.job import ENDED, Job, JobContext, Snapshot, State, Stopped
from app.models.downloads.manifest import Manifest
from app.models.downloads.staging import Space, Staging, unfinished
from app.models.hub.client import Hub, read_token
from app.settings import Settings

AT_ONCE = 3
LOOK_EVERY = 0.25  # seconds between snapshots of ``follow``

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Item:
    """One line of the queue; ``ended`` overrides what the job itself would say."""

    job: Job
    thread: threading.Thread | None = None
    ended: State | None = None
    error: str | None = None
    gated: bool = False  # the error is the hub's refusal

    @property
    def busy(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class Downloads:
    """The queue of one process; it asks the hub for nothing before ``add`` or ``resume``."""

    def __init__(self, around: JobContext, at_once: int = AT_ONCE) -> None:
        self._around, self._at_once = around, at_once
        self._items: dict[str, _Item] = {}
        self._change = threading.Condition(threading.RLock())
        for order in unfinished(around.models_folder):  # the network waits for a person
            self._items[order.name] = _Item(Job(order, around), ended=State.PAUSED)

    @property
    def hub(self) -> Hub:
        """Where orders are made; closed with the queue."""
        return self._around.hub

    def add(self, orders: Iterable[Manifest]) -> None:
        """Queue ``orders``; one that is there already resumes. Raises DiskFull before anything."""
        with self._change:
            new = list(orders)
            names = {order.name for order in new}
            others = [item.job.order for name, item in self._items.items() if name not in names and not item.ended]  # fmt: skip
            needed = sum(self._staging(order.name).remaining(order) for order in (*others, *new))
            self._around.space.check(" with ".join(order.name for order in new), needed)
            for order in new:
                current = self._items.get(order.name)
                if current is None or current.ended:
                    self._items[order.name] = _Item(Job(order, self._around))
            self._start_next()

    def pause(self, name: str) -> None:
        """Stop soon, and keep what arrived."""
        self._end(name, State.PAUSED, discard=False)

    def resume(self, name: str) -> None:
        """Resume where it stopped; also after a failure."""
        self.add([self._known(name).job.order])

    def cancel(self, name: str) -> None:
        """Stop soon, and take away what arrived; raises DownloadFailed if another process works."""
        self._end(name, State.CANCELLED, discard=True)

    def forget(self, name: str) -> None:
        """Drop a download that is complete or was cancelled."""
        with self._change:
            item = self._items.get(name)
            if item is not None and item.ended in (State.DONE, State.CANCELLED) and not item.busy:
                del self._items[name]

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Every download that this process knows, in the order they were asked for."""
        with self._change:
            return tuple(
                replace(item.job.snapshot(item.ended, item.error), gated=item.gated)
                for item in self._items.values()
            )

    async def follow(self, every: float = LOOK_EVERY) -> AsyncIterator[tuple[Snapshot, ...]]:
        """Snapshots until everything has ended; the last one shows how."""
        while True:
            now = self.snapshots()
            yield now
            if all(snapshot.state in ENDED for snapshot in now):
                return
            await asyncio.sleep(every)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until everything has ended, or ``timeout`` seconds; returns whether it has."""
        with self._change:
            return self._change.wait_for(self._all_ended, timeout)

    def close(self) -> None:
        """Stop every thread and keep what arrived, for the next process."""
        with self._change:
            for item in self._items.values():
                item.ended = item.ended or State.PAUSED
                item.job.stop(discard=False)
            threads = [item.thread for item in self._items.values() if item.thread]
        for thread in threads:
            thread.join()
        self._around.hub.close()

    def _all_ended(self) -> bool:
        return all(item.ended and not item.busy for item in self._items.values())

    def _staging(self, name: str) -> Staging:
        return Staging(self._around.models_folder, name)

    def _known(self, name: str) -> _Item:
        if name not in self._items:
            raise DownloadFailed(f"there is no download of {name}; start it first")
        return self._items[name]

    def _end(self, name: str, state: State, *, discard: bool) -> None:
        with self._change:
            item = self._known(name)
            if item.ended is State.DONE:
                return
            item.job.stop(discard=discard)
            if discard and not item.busy:
                self._staging(name).discard_unlocked()
            item.ended, item.error = state, None
            self._change.notify_all()

    def _start_next(self) -> None:
        """Fill the free places; called with the lock held."""
        places = self._at_once - sum(item.busy for item in self._items.values())
        waiting = [item for item in self._items.values() if not item.ended and not item.thread]
        for item in waiting[: max(places, 0)]:
            item.thread = threading.Thread(target=self._work, args=[item], daemon=True)
            item.thread.start()

    def _work(self, item: _Item) -> None:
        ended, error, gated = State.DONE, None, False
        try:
            item.job.run()
        except Stopped:
            ended = State.PAUSED
        except AppError as failure:
            ended, error = State.FAILED, str(failure)
            gated = isinstance(failure, AccessDenied)
        except Exception as failure:  # the edge of this thread: shown and logged
            log.exception("download of %s", item.job.order.name)
            ended, error = State.FAILED, f"{item.job.order.name}: {failure}; resume to try again"
        with self._change:
            item.ended = item.ended or ended
            item.error = error if item.ended is State.FAILED else None
            item.gated = gated and item.ended is State.FAILED
            item.thread = None
            self._start_next()
            self._change.notify_all()


def open_hub(settings: Settings) -> Hub:
    """The hub that the settings name, with the person's token."""
    return Hub(settings.hub, read_token(settings), offline=settings.offline)


def open_downloads(settings: Settings, hub: Hub) -> Downloads:
    """The queue, with what earlier processes left unfinished as paused; closing it closes ``hub``."""
    folder = settings.models_folder
    return Downloads(JobContext(hub, folder, Space(folder), settings.others.hub))
