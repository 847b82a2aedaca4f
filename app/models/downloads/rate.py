"""Speed and time left of something that arrives in pieces."""

import time
from collections import deque
from collections.abc import Callable

WINDOW = 10.0  # seconds that the speed is an average of
STEP = 0.25  # seconds that one sample stands for, at the least


class TransferRate:
    """Bytes over the last seconds; for one thread that adds and others that read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._total = 0

    def add(self, count: int) -> None:
        """So many bytes came over the network."""
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
