"""Turn torch's error for a full device into OutOfMemory with the device's numbers.

What it does: torch states the bytes that it tried to allocate only in its message, which is parsed.

Delete when: torch's OutOfMemoryError has the number as an attribute.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.errors import OutOfMemory

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@contextmanager
def out_of_memory_as_ours(device: torch.device) -> Iterator[None]:
    """Raise OutOfMemory where torch raises its own error, and empty the allocator's cache."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        free, total = 0, 0
        if device.type == "cuda":
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info(device)
        raise OutOfMemory(_requested(str(error)), free, total) from error


def _requested(message: str) -> int:
    """Bytes that torch tried to allocate, by its message; 0 where it has no number."""
    found = re.search(r"allocate ([\d.]+) (bytes|KiB|MiB|GiB)", message)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0
