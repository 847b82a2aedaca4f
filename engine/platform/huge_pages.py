"""Move loaded weights to memory pages of 2 MB, where Linux has them.

What it does: Linux mostly gives out huge pages only to programs that ask ("madvise"), and neither
torch, oneDNN nor llama.cpp ask for their repacked weights. After a load this asks the kernel to
collapse them (MADV_COLLAPSE, since 6.1). Only blocks whose every small page is in use are moved, so a
cache that is mostly empty takes no more memory. Files that are mapped need nothing. What the system
refuses stays where it was.

Gain: a plain pass reads all weights once, and in pages of 4 KB about every second kilobyte waits for
an address translation, in a virtual machine two.

Delete when: the libraries use huge pages for weights, or "always" is the usual setting in
/sys/kernel/mm/transparent_hugepage/enabled.
"""

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

Span = tuple[int, int]  # first address, and the one after the last
Move = Callable[[int, int], bool]
"""(address, bytes) -> whether all of it is in huge pages now."""

MAPS, PAGES = Path("/proc/self/maps"), Path("/proc/self/pagemap")
SYSTEM = Path("/sys/kernel/mm/transparent_hugepage")
COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1; Python has no name for it
ENTRY = 8  # bytes of a page's entry in PAGES; its flag:
PRESENT = np.uint64(1) << np.uint64(63)
STRIDE = 64 << 20  # bytes between two looks at the clock
SECONDS = 20.0  # that moving may take: a system without free blocks makes room for each


@contextmanager
def in_huge_pages(seconds: float = SECONDS) -> Iterator[None]:
    """Memory that is taken meanwhile, and kept, is moved at the end; at most ``seconds`` are spent."""
    size = block_bytes()
    before = list(private_memory()) if size else []
    yield
    if size:
        move = partial(_collapse, ctypes.CDLL(None, use_errno=True).madvise)
        new = (part for span in private_memory() for part in without(span, before))
        enlarge((full for span in new for full in in_use(span, size)), move, seconds)


def block_bytes() -> int:
    """Bytes of a huge page; 0 where the system has none or is set to use none."""
    try:
        return 0 if switched_off() else int((SYSTEM / "hpage_pmd_size").read_text("ascii"))
    except (OSError, ValueError):  # another system, or a kernel without them
        return 0


def switched_off() -> bool:
    """Whether this system has huge pages and is set to use none."""
    setting = SYSTEM / "enabled"
    return setting.exists() and "[never]" in setting.read_text("ascii")


def enlarge(spans: Iterator[Span], move: Move, seconds: float) -> int:
    """Move these whole blocks piece by piece while time is left; returns bytes that were moved."""
    until, moved = time.perf_counter() + seconds, 0
    for start, end in spans:
        for at in range(start, end, STRIDE):
            if time.perf_counter() > until:
                return moved
            length = min(STRIDE, end - at)
            moved += length if move(at, length) else 0
    return moved


def without(span: Span, others: Sequence[Span]) -> Iterator[Span]:
    """The parts of ``span`` that lie in none of the others, which are in order."""
    at, end = span
    for start, stop in others:
        if stop <= at or start >= end:
            continue
        if start > at:
            yield at, start
        at = stop
    if at < end:
        yield at, end


def full_blocks(start: int, used: np.ndarray, size: int, page: int) -> Iterator[Span]:
    """Runs of blocks of ``size`` bytes all of whose pages are ``used`` [n], the first at ``start``."""
    each = size // page
    skipped = -start % size // page
    blocks = used[skipped:]
    whole = blocks[: len(blocks) // each * each].reshape(-1, each).all(1)
    edges = np.flatnonzero(np.diff(whole, prepend=False, append=False))
    first = start + skipped * page
    for begin, end in edges.reshape(-1, 2).tolist():
        yield first + begin * size, first + end * size


def private_memory() -> Iterator[Span]:
    """Writable memory of this process alone that is not mapped from a file, in order of address."""
    for line in MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        place, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights == "rw-p" and inode == "0" and (not name or name[0] == "[heap]"):
            start, end = (int(address, 16) for address in place.split("-"))
            yield start, end


def mapped_files(suffix: str) -> Iterator[Span]:
    """Read-only memory of files whose names end so."""
    for line in MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        place, rights, *_, name = line.split(maxsplit=5)
        if rights.startswith("r--") and name.endswith(suffix):
            start, end = (int(address, 16) for address in place.split("-"))
            yield start, end


def in_use(span: Span, size: int) -> Iterator[Span]:
    """Runs of blocks that are in memory as a whole."""
    yield from full_blocks(span[0], _pages(span, size), size, mmap.PAGESIZE)


def _pages(span: Span, size: int) -> np.ndarray:
    """Which pages [n] of ``span`` are in memory; n is 0 without a block, or where it is not known."""
    start, end = span
    count = (end - start) // mmap.PAGESIZE if end - start >= size else 0
    try:
        with PAGES.open("rb", buffering=0) as file:
            entries = os.pread(file.fileno(), count * ENTRY, start // mmap.PAGESIZE * ENTRY)
    except OSError:  # unreadable here
        entries = b""
    found: np.ndarray = (np.frombuffer(entries, np.uint64) & PRESENT) != 0
    return found


def _collapse(madvise: Callable[..., int], start: int, length: int) -> bool:
    return madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), COLLAPSE) == 0
