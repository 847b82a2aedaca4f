"""How much of this program's cores others took: other programs, and other tenants of the machine."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
WAITS = (3, 4)  # idle and iowait, of the columns of /proc/stat
GUESTS = 8  # from this column on: counted in the others already
DISTURBED = 0.05  # of a core
TICKS = 4  # of the clock: less than that of four numbers is rounding


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of cores since the clock began, and those that others had of them."""

    seconds: float
    others: float

    @property
    def disturbed(self) -> bool:
        """Whether a time measured meanwhile should not count."""
        least = TICKS / _ticks() if hasattr(os, "sysconf") else 0.0
        return self.others > max(DISTURBED * self.seconds, least)


class Watch:
    """Begins when it is made; knows nothing outside Linux, where nothing is disturbed."""

    def __init__(self, pids: Iterable[int | None], proc: Path = PROC) -> None:
        """``pids`` are this program's own: what they take is not others'."""
        self._pids, self._proc = [pid for pid in pids if pid is not None], proc
        self._started, self._before = time.perf_counter(), self._others()

    def taken(self) -> Taken:
        """Until now."""
        seconds = time.perf_counter() - self._started
        return Taken(seconds, max(0.0, self._others() - self._before))

    def _others(self) -> float:
        """Core seconds that our cores gave to others since they began."""
        try:
            busy = sum(self._busy(line) for line in _lines(self._proc / "stat"))
            own = sum(self._own(pid) for pid in self._pids)
        except OSError:
            return 0.0
        return (busy - own) / _ticks()

    def _busy(self, line: str) -> int:
        """Ticks of one core of ours in which it did not wait; stolen ones, too."""
        name, *columns = line.split()
        if not name.startswith("cpu") or name == "cpu" or int(name[3:]) not in _cores():
            return 0
        ticks = [int(column) for column in columns[:GUESTS]]
        return sum(ticks) - sum(ticks[place] for place in WAITS)

    def _own(self, pid: int) -> int:
        text = (self._proc / str(pid) / "stat").read_text()
        columns = text.rpartition(")")[2].split()  # the name may hold spaces
        return int(columns[11]) + int(columns[12])


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _cores() -> set[int]:
    return os.sched_getaffinity(0)


def _ticks() -> int:
    """Of the clock, a second."""
    return os.sysconf("SC_CLK_TCK")
