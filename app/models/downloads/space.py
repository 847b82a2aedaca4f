"""Whether the disk has room for what is to come."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.errors import DiskFull
from app.models.downloads.partial_file import shown_bytes

RESERVE = 512_000_000  # stays free: conversations and history live on the same disk
CHECK_EVERY = 256_000_000


def free_bytes(folder: Path) -> int:
    """What this user may still write to the disk of ``folder``."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True, slots=True)
class Space:
    """The room on one disk; ``free`` is replaced where another limit than the disk counts."""

    folder: Path
    reserve: int = RESERVE
    free: Callable[[Path], int] = free_bytes

    def check(self, what: str, needed: int) -> None:
        """Raise DiskFull unless ``needed`` more bytes leave the reserve free."""
        there = self.free(self.folder)
        lacking = needed + self.reserve - there
        if needed and lacking > 0:
            raise DiskFull(
                f"{what} needs {shown_bytes(needed)} more and {shown_bytes(self.reserve)} stay "
                f"free, but {self.folder} has {shown_bytes(there)}; make room for "
                f"{shown_bytes(lacking)}, or set SLIPSTREAM_HOME to another disk"
            )
