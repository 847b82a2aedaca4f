"""The terminal: text without control over it, what is piped in, one line of progress for people."""

import asyncio
import os
import select
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import TypeVar

from app.environment import variable

FoundT = TypeVar("FoundT")

EVERY = 0.5  # seconds from one look at the clock to the next
WIDTH = 20  # of a bar
PATIENCE = 3.0  # seconds until a pipe that brings nothing is mentioned
_PLAIN = frozenset({"dumb", "unknown"})  # terminals that show what should move them
_DELETE, _C1 = 0x7F, range(0x80, 0xA0)
_PICTURES = {code: 0x2400 + code for code in range(32)} | {_DELETE: 0x2421}
_HARMLESS: dict[int, int | None] = {
    **_PICTURES, **dict.fromkeys(_C1, 0xFFFD), ord("\n"): ord("\n"), ord("\t"): ord("\t"), ord("\r"): None,
}  # fmt: skip


def harmless(text: str) -> str:
    """``text`` with pictures in place of the characters that terminals obey, line ends and tabs aside.

    Answers, names of files and models, and messages of servers are written by others.
    """
    return text.translate(_HARMLESS)


def write(text: str) -> None:
    """Write ``text`` to standard output at once."""
    sys.stdout.write(harmless(text))
    sys.stdout.flush()


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output as they come."""
    for line in lines:
        write(f"{line}\n")


def notify(*lines: str | None) -> None:
    """Write lines to standard error, which is for people; empty ones are left out."""
    sys.stderr.writelines(f"{harmless(line)}\n" for line in lines if line)


def piped(most: int) -> bytes:
    """At most so many bytes of a pipe or file at standard input; nothing where that is a terminal or closed."""
    try:
        place = sys.stdin.fileno()
        kind = os.fstat(place).st_mode
    except (OSError, ValueError):  # closed, or replaced by a test
        return b""
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or stat.S_ISREG(kind)):
        return b""
    if not select.select([place], [], [], PATIENCE)[0]:
        notify("reading standard input; to ask without it, add < /dev/null")
    return sys.stdin.buffer.read(most)


def show_progress(text: str) -> None:
    """Replace the line; an empty text takes it away. Nothing where no terminal could do that."""
    if sys.stderr.isatty() and variable("TERM") not in _PLAIN:
        fits = shutil.get_terminal_size().columns - 1  # a line that wraps is not taken away
        sys.stderr.write(f"\r\x1b[K{harmless(text)[:fits]}")
        sys.stderr.flush()


async def waiting(text: str, work: Awaitable[FoundT], share: Callable[[], float] = float) -> FoundT:
    """What ``work`` comes to; the line says what is waited for, for how many seconds, and a known share."""
    started = monotonic()
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            show_progress(f"{_bar(share())}{text}, {monotonic() - started:.0f} s")
            await asyncio.wait({task}, timeout=EVERY)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # it may have something to clean up
        raise
    finally:
        show_progress("")
    return await task


def _bar(share: float) -> str:
    """Empty where the share is not known."""
    done = round(WIDTH * share)
    return f"[{'#' * done}{'.' * (WIDTH - done)}] " if share else ""
