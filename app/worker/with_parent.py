"""A process that ends as soon as the one that started it has ended."""

import multiprocessing
import os
from threading import Thread


def end_with_parent() -> None:
    """From now on; does nothing in a process that has no parent of this program."""
    if multiprocessing.parent_process() is not None:
        Thread(target=_wait, name="end with the parent", daemon=True).start()


def _wait() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
