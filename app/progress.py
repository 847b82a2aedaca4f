"""Progress of a long command: one line that is written over, for people only."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

FoundT = TypeVar("FoundT")

EVERY = 0.5  # seconds from one look at the clock to the next
WIDTH = 20  # of a bar


def show_progress(text: str) -> None:
    """Replace the line; an empty text takes it away. Nothing when standard error is no terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
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
