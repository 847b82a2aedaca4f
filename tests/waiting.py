"""Waiting for what another thread or process does, with an end."""

import time
from collections.abc import Callable


def wait_for(seen: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as ``seen`` returns something true; fail where it does not in that time."""
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)
