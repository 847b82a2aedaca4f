"""Ring: buffers that background readers fill in the order in which a pass will ask for them.

Pieces form a circle: behind the last piece of a pass comes the first of the next, so readers work
while a drafter drafts. Whoever asks out of order gets the right piece, later.
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
GLANCE = 0.5  # seconds between two looks whether the readers are alive

Fill = Callable[[Shard, memoryview], None]
"""Read a piece's span into a buffer; raises OSError."""


@dataclass(frozen=True, slots=True)
class _Filled:
    buffer: mmap.mmap
    error: str = ""


class PrefetchBuffer:
    """One consumer, several readers; holds ``buffers`` times ``size`` bytes and no more."""

    def __init__(
        self, pieces: Sequence[Shard], fill: Fill, buffers: int, patience: float = PATIENCE
    ) -> None:
        """Nothing is read before the first piece is asked for."""
        size = max(piece.span[1] for piece in pieces)
        self._pieces, self._fill, self._patience = tuple(pieces), fill, patience
        self._place = {piece: at for at, piece in enumerate(self._pieces)}
        self._free = [pages(size) for _ in range(buffers)]
        self.size = buffers * size  # bytes
        self.waited = 0.0  # seconds
        self._ready: dict[int, _Filled] = {}  # by number; numbers go on behind the last piece
        self._epoch = 0  # of a reading order; what older ones still read is thrown away
        self._use = self._read = 0  # numbers of the next piece to use, and to read
        self._reading = False
        self._ended = False
        self._changed = threading.Condition()
        self._readers: list[threading.Thread] = []

    def take(self, piece: Shard) -> mmap.mmap:
        """The filled buffer, to be given back; raises LayerUnreadable."""
        with self._changed:
            if not self._reading or self._pieces[self._use % len(self._pieces)] != piece:
                self._turn_to(piece)
            self._hire()
            self._wait(piece)
            found = self._ready.pop(self._use)
            self._use += 1
            if found.error:
                self._free.append(found.buffer)
                self._fail(piece, found.error)
            return found.buffer

    def _wait(self, piece: Shard) -> None:
        started = time.monotonic()
        while self._use not in self._ready:
            self._check(piece, started + self._patience)
            self._changed.wait(GLANCE)
        self.waited += time.monotonic() - started

    def give_back(self, buffer: mmap.mmap) -> None:
        """The buffer may be filled again."""
        with self._changed:
            self._free.append(buffer)
            self._changed.notify_all()

    def close(self) -> None:
        """End the readers; the ring is of no use afterwards."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _turn_to(self, piece: Shard) -> None:
        """Start reading here."""
        self._forget()
        self._use = self._read = self._place[piece]
        self._reading = True
        self._changed.notify_all()

    def _forget(self) -> None:
        self._epoch += 1
        self._reading = False
        self._free += [filled.buffer for filled in self._ready.values()]
        self._ready.clear()

    def _hire(self) -> None:
        """As many readers as there should be; those that died are replaced."""
        alive = [reader for reader in self._readers if reader.is_alive()]
        fresh = [
            threading.Thread(target=self._work, name="layer reader", daemon=True)
            for _ in range(READERS - len(alive))
        ]
        self._readers = alive + fresh
        for reader in fresh:
            reader.start()

    def _check(self, piece: Shard, deadline: float) -> None:
        """Raises LayerUnreadable rather than wait for what will not come."""
        if not all(reader.is_alive() for reader in self._readers):
            self._fail(piece, "a reader of the weights ended unexpectedly")
        if time.monotonic() > deadline:
            self._fail(piece, f"the disk gave no answer for {self._patience:.0f} seconds")

    def _fail(self, piece: Shard, why: str) -> None:
        """The next request starts afresh."""
        self._forget()
        raise LayerUnreadable(piece.layer, piece.tensor, str(piece.extent.file), why)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            number, epoch, buffer = job
            error = ""
            try:
                piece = self._pieces[number % len(self._pieces)]
                self._fill(piece, memoryview(buffer)[: piece.span[1]])
            except OSError as failure:
                error = failure.strerror or str(failure)
            except BaseException:
                with self._changed:  # the thread ends, its buffer does not
                    self._free.append(buffer)
                raise
            self._deliver(number, epoch, _Filled(buffer, error))

    def _next(self) -> tuple[int, int, mmap.mmap] | None:
        """The next number with an empty buffer; None when the ring is closed."""
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
