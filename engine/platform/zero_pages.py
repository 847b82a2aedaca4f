"""Give memory back to the system that a loaded GGUF file does not need, until it is used.

What it does: llama.cpp takes its cache for the longest conversations that were planned. Set-up compiles it
so that a new cache is left as the system gave it (``llama_cpp.cmake``); other builds write zeros into all of
it, and here blocks of nothing but zeros are given back (MADV_DONTNEED). They read as zeros, and take memory
again page by page as conversations grow. Weights that llama.cpp copied into a form of its own are in memory
twice: the pages of the file are unmapped, too, and those that are read come back.

Gain: Qwen2.5-Coder 0.5B (0.49 GB) with four conversations of 32,768 tokens took 2.4 GB after a load, and
takes 0.68. Of its Q4_0 file, 0.43 GB, another 0.19 GB are in memory once instead of twice.

Delete when: llama.cpp leaves a new cache as the system gave it, which is zero already, and unmaps what it
has copied.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.platform.huge_pages import Span, in_use, mapped_files, private_memory, without

BLOCK = 2 << 20  # bytes that are given back together


@contextmanager
def zeros_given_back() -> Iterator[None]:
    """Of the memory that is taken meanwhile; no one may write to it until the block has ended."""
    if sys.platform != "linux":
        yield
        return
    before = list(private_memory())
    yield
    give_back(part for span in private_memory() for part in without(span, before))


def unmap_read(suffix: str) -> None:
    """Unmap the pages of mapped files with such names; what is read again comes from the page cache."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    for start, end in mapped_files(suffix):
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def give_back(spans: Iterator[Span]) -> int:
    """Give back the blocks of these spans that hold only zeros; returns their bytes."""
    libc, given = ctypes.CDLL(None, use_errno=True), 0
    for start, end in [full for span in spans for full in in_use(span, BLOCK)]:
        for at, length in _zeros(libc.memcmp, start, end):
            failed = libc.madvise(
                ctypes.c_void_p(at), ctypes.c_size_t(length), mmap.MADV_DONTNEED
            )  # locked memory stays
            given += 0 if failed else length
    return given


def _zeros(compare: Callable[..., int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(address, bytes) of runs of blocks without another byte."""
    zeros, size, first = bytes(BLOCK), ctypes.c_size_t(BLOCK), start
    for at in range(start, end, BLOCK):
        if compare(ctypes.c_void_p(at), zeros, size):
            if at > first:
                yield first, at - first
            first = at + BLOCK
    if end > first:
        yield first, end - first
