"""Torch's error for a full device becomes ours, with the number from its message."""

import inspect

import pytest
import torch

from engine.errors import OutOfMemory
from engine.platform.device_memory import out_of_memory_as_ours


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...", 20 * 2**20),
        ("Tried to allocate 2.50 GiB.", 5 * 2**29),
        ("Tried to allocate 512 bytes", 512),
        ("out of memory", 0),
    ],
)
def test_the_bytes_come_from_the_message(message, needed):
    with pytest.raises(OutOfMemory) as caught, out_of_memory_as_ours(torch.device("cpu")):
        raise torch.OutOfMemoryError(message)
    assert caught.value.needed == needed


def test_it_still_applies_the_error_has_no_number_of_its_own():
    fields = {name for name, _ in inspect.getmembers(torch.OutOfMemoryError("x"))}
    assert fields - {name for name, _ in inspect.getmembers(RuntimeError("x"))} <= {
        "__module__",
        "__weakref__",
        "__dict__",
    }
