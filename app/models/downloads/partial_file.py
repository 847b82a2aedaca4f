"""PartialFile: the bytes of one file that have arrived, hashed as they arrive, kept over crashes."""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path

from app.errors import ChecksumMismatch, DiskFull
from app.files import sync_folder
from app.models.hub.repository import PIECE, RemoteFile


class PartialFile:
    """``<name>.part``; the name itself appears once all is checked.

    Bytes are appended without a buffer, so a killed process loses none that it was given.
    """

    def __init__(self, place: Path, file: RemoteFile) -> None:
        self.file, self.place = file, place
        self._part = self.place.with_name(f"{self.place.name}.part")
        self._raw: io.FileIO | None = None
        self._hash = file.digest.start(file.size)
        self.size = 0  # bytes that are here
        self.pieced = False  # whether they came in more than one answer

    def open(self, seen: Callable[[int], None]) -> None:
        """Continue what an earlier process left; ``seen`` gets the counts of bytes hashed again."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self._raw = self._part.open("ab+", buffering=0)
        if self._part.stat().st_size > self.file.size:
            self.restart()
            return
        self._raw.seek(0)
        while piece := self._raw.read(PIECE):
            self._hash.update(piece)
            self.size += len(piece)
            seen(len(piece))
        self.pieced = self.size > 0

    def restart(self) -> None:
        """Forget every byte."""
        self._opened().truncate(0)
        self._hash = self.file.digest.start(self.file.size)
        self.size, self.pieced = 0, False

    def append(self, data: bytes) -> None:
        """Store what arrived; raises DiskFull with everything before kept."""
        raw, rest = self._opened(), memoryview(data)
        while rest:
            try:
                written = raw.write(rest) or 0
            except OSError as error:
                raise self._failure(error) from error
            self._hash.update(bytes(rest[:written]))
            self.size += written
            rest = rest[written:]

    def finish(self) -> None:
        """Check the digest and give the file its name; raises ChecksumMismatch, all bytes gone."""
        raw = self._opened()
        found = self._hash.hexdigest()
        if found != self.file.digest.value:
            self.restart()
            raise ChecksumMismatch(
                f"{self.file.name} arrived with the {self.file.digest.kind} digest {found}, the hub "
                f"says {self.file.digest.value}; the file was thrown away, try again later"
            )
        os.fsync(raw.fileno())
        self.close()
        self._part.replace(self.place)
        sync_folder(self.place.parent)

    def close(self) -> None:
        """Give back the file; what arrived stays."""
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    def _opened(self) -> io.FileIO:
        assert self._raw is not None, "open() comes first"
        return self._raw

    def _failure(self, error: OSError) -> DiskFull:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise error
        return DiskFull(
            f"the disk of {self.place.parent} is full: {self.file.name} has "
            f"{shown_bytes(self.size)} of {shown_bytes(self.file.size)}, which is kept; make room "
            "and resume"
        )


def shown_bytes(count: float) -> str:
    """A size for people, in powers of 1,024, as memory has: what fits where is one look."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
