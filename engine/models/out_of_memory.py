"""Torch's own error for a full device, as OutOfMemory with the device's numbers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.errors import OutOfMemory

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@contextmanager
def memory_told(device: torch.device) -> Iterator[None]:
    """Raise OutOfMemory where torch raises its own error; what the allocator kept is given back."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        free, total = 0, 0
        if device.type == "cuda":
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info(device)
        raise OutOfMemory(_requested(str(error)), free, total) from error


def _requested(message: str) -> int:
    """Bytes that torch says it tried to allocate; 0 where it says nothing."""
    found = re.search(r"allocate ([\d.]+) (bytes|KiB|MiB|GiB)", message)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0
