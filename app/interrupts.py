"""Processes that Ctrl-C does not reach: whoever started them ends them."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """A process started here has Ctrl-C blocked from its first instruction on."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # it unblocks Ctrl-C as it starts, with the first process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
