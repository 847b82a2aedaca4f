"""Files that are read past the page cache, and that must stay what they were."""

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelUnusable

Read = Callable[[int, memoryview, int], int]
"""(descriptor, buffer, offset) -> bytes read; raises OSError."""

_DIRECT = getattr(os, "O_DIRECT", 0)


@dataclass(frozen=True, slots=True)
class Weights:
    """An open file with the size and time that it had when it was opened."""

    path: Path
    descriptor: int
    size: int
    changed: int  # ns
    direct: bool

    def check(self) -> None:
        """Raises OSError when the file is no longer the one that was opened."""
        now = os.fstat(self.descriptor)
        if now.st_size < self.size:
            raise OSError(f"the file was cut from {self.size} to {now.st_size} bytes")
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise OSError("the file was changed while it was in use")

    def drop_cached(self, start: int, size: int) -> None:
        """Where reads are not direct, keep the system from filling memory with them."""
        if not self.direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.descriptor, start, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


def pages(size: int) -> mmap.mmap:
    """Memory on page boundaries, in large pages where there are any: direct reads pin every page.

    Large pages are for private memory alone where the system does not share them.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them
            return memory
    return memory


def open_weights(path: Path) -> Weights:
    """Open for direct reads where the file system has them; raises ModelUnusable."""
    if not hasattr(os, "preadv"):
        raise ModelUnusable(
            "this system cannot read weights by offset, so nothing can be streamed; "
            "load the model without a limit"
        )
    try:
        descriptor, direct = _opened(path)
        state = os.fstat(descriptor)
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be opened: {error.strerror}") from error
    return Weights(path, descriptor, state.st_size, state.st_mtime_ns, direct)


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill the buffer from this offset; fewer bytes only at the end of the file."""
    done = 0
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done:]], offset + done)
        done += count
        if count == 0 or done % 4096:  # a direct read that ends inside a page has met the end
            break
    return done


def _opened(path: Path) -> tuple[int, bool]:
    if _DIRECT:
        try:
            return os.open(path, os.O_RDONLY | _DIRECT), True
        except OSError:  # a file system without direct reads says so here
            pass
    descriptor = os.open(path, os.O_RDONLY)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    return descriptor, False
