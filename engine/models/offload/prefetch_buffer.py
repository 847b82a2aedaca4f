"""Buffers that background threads fill with shards in the order of the pass.

After the last shard of a pass comes the first of the next, so readers work while a drafter drafts. A
shard out of order is the right one, only later.
"""

import mmap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.errors import LayerUnreadable
from engine.models.offload.direct_files import pages
from engine.models.offload.shards import Shard

READERS = 2  # reads at once: one leaves the disk idle between requests
PATIENCE = 60.0  # seconds without an answer from the disk
CHECK_SECONDS = 0.5  # seconds between two checks that the readers are alive

Fill = Callable[[Shard, memoryview], None]
"""Read a shard's span into a buffer; raises OSError."""


@dataclass(frozen=True, slots=True)
class _Filled:
    buffer: mmap.mmap
    error: str = ""


class PrefetchBuffer:
    """One consumer, several readers; holds ``buffers`` times ``size`` bytes and no more."""

    def __init__(
        self, shards: Sequence[Shard], fill: Fill, buffers: int, patience: float = PATIENCE
    ) -> None:
        """Nothing is read before the first ``take``."""
        size = max(shard.span[1] for shard in shards)
        self._shards, self._fill, self._patience = tuple(shards), fill, patience
        self._place = {shard: at for at, shard in enumerate(self._shards)}
        self._free = [pages(size) for _ in range(buffers)]
        self.size = buffers * size  # bytes
        self.waited = 0.0  # seconds
        self._ready: dict[int, _Filled] = {}  # by number; numbers continue after the last shard
        self._epoch = 0  # of a reading order; reads of older ones are discarded
        self._use = self._read = 0  # numbers of the next shard to use, and to read
        self._reading = False
        self._ended = False
        self._changed = threading.Condition()
        self._readers: list[threading.Thread] = []

    @property
    def buffered(self) -> int:
        """Shards that are read and not taken yet."""
        return len(self._ready)

    def take(self, shard: Shard) -> mmap.mmap:
        """The filled buffer, to be given back; raises LayerUnreadable."""
        with self._changed:
            if not self._reading or self._shards[self._use % len(self._shards)] != shard:
                self._turn_to(shard)
            self._start_readers()
            self._wait(shard)
            found = self._ready.pop(self._use)
            self._use += 1
            if found.error:
                self._free.append(found.buffer)
                self._fail(shard, found.error)
            return found.buffer

    def _wait(self, shard: Shard) -> None:
        started = time.monotonic()
        while self._use not in self._ready:
            self._check(shard, started + self._patience)
            self._changed.wait(CHECK_SECONDS)
        self.waited += time.monotonic() - started

    def give_back(self, buffer: mmap.mmap) -> None:
        """The buffer may be filled again."""
        with self._changed:
            self._free.append(buffer)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the readers for good."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _turn_to(self, shard: Shard) -> None:
        """Start reading here."""
        self._forget()
        self._use = self._read = self._place[shard]
        self._reading = True
        self._changed.notify_all()

    def _forget(self) -> None:
        self._epoch += 1
        self._reading = False
        self._free += [filled.buffer for filled in self._ready.values()]
        self._ready.clear()

    def _start_readers(self) -> None:
        """Start the readers; those that died are replaced."""
        alive = [reader for reader in self._readers if reader.is_alive()]
        fresh = [
            threading.Thread(target=self._work, name="layer reader", daemon=True)
            for _ in range(READERS - len(alive))
        ]
        self._readers = alive + fresh
        for reader in fresh:
            reader.start()

    def _check(self, shard: Shard, deadline: float) -> None:
        """Raises LayerUnreadable when a reader died or the disk takes too long."""
        if not all(reader.is_alive() for reader in self._readers):
            self._fail(shard, "a reader of the weights ended unexpectedly")
        if time.monotonic() > deadline:
            self._fail(shard, f"the disk gave no answer for {self._patience:.0f} seconds")

    def _fail(self, shard: Shard, why: str) -> None:
        """Start over with the next request."""
        self._forget()
        raise LayerUnreadable(shard.layer, shard.tensor, str(shard.extent.file), why)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            number, epoch, buffer = job
            error = ""
            try:
                shard = self._shards[number % len(self._shards)]
                self._fill(shard, memoryview(buffer)[: shard.span[1]])
            except OSError as failure:
                error = failure.strerror or str(failure)
            except BaseException:
                with self._changed:  # the thread dies, its buffer must not be lost
                    self._free.append(buffer)
                raise
            self._deliver(number, epoch, _Filled(buffer, error))

    def _next(self) -> tuple[int, int, mmap.mmap] | None:
        """The next number with an empty buffer; None when closed."""
        with self._changed:
            while not self._ended and not (self._reading and self._free):
                self._changed.wait()
            if self._ended:
                return None
            self._read += 1
            return self._read - 1, self._epoch, self._free.pop()

    def _deliver(self, number: int, epoch: int, filled: _Filled) -> None:
        with self._changed:
            if epoch == self._epoch:
                self._ready[number] = filled
            else:
                self._free.append(filled.buffer)
            self._changed.notify_all()
