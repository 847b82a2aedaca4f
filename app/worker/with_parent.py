"""A process that ends with the one that started it, whatever it is in the middle of."""

import multiprocessing
import os
from threading import Thread


def end_with_parent() -> None:
    """From now on; nothing where no process of this program started this one."""
    if multiprocessing.parent_process() is not None:
        Thread(target=_wait, name="end with the parent", daemon=True).start()


def _wait() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
