"""Run in a process of its own: what loading and using a model adds to memory, as one JSON line.

Arguments: torch, folder, dtype, tokens; or llama_cpp, file, tokens. Memory is what the process
cannot give back: file pages that the system may drop at any time are left out, but for those of
weights that are read in place.
"""

import ctypes
import gc
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.own.target import TorchTarget

ROWS = 256
DONT_NEED = 4  # Linux's MADV_DONTNEED


def resident(field: str) -> int:
    """Bytes of one field of the process's status, freed memory given back first."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return taken(field)


@contextmanager
def peak_of(field: str) -> Iterator[list[int]]:
    """Bytes of one field, looked at all the while by a thread."""
    seen, over = [taken(field)], threading.Event()

    def look() -> None:
        while not over.wait(0.001):
            seen.append(taken(field))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def taken(field: str) -> int:
    """Bytes of one field of the process's status."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+)", status)
    assert found
    return 1024 * int(found[1])


def plain_weights(target: "TorchTarget") -> "Iterator[Tensor]":
    """Embedding and maps that are not packed; a processor may be unable to pack any."""
    from engine.decoder.decoder import Dense
    from engine.platform.upcast_linear import UpcastLinear

    yield target.weights.embedding
    for layer in target.weights.layers:
        for linear in (layer.qkv, layer.out, layer.gate_up, layer.down):
            if isinstance(linear, Dense | UpcastLinear):
                yield linear.weight


def in_a_file(tensor: "Tensor", folder: str) -> bool:
    """Whether it lies in the pages of one of the folder's files."""
    return any(tensor.data_ptr() in one for one in mapped(f"{folder}/"))


def mapped(place: str) -> list[range]:
    """Addresses where files are mapped whose paths begin like this."""
    maps = Path("/proc/self/maps").read_text()
    found = re.findall(rf"^(\w+)-(\w+) .* {re.escape(place)}", maps, re.MULTILINE)
    return [range(int(start, 16), int(end, 16)) for start, end in found]


def drop_pages(file: str) -> None:
    """Give a file's pages back; those that are read again come again."""
    libc = ctypes.CDLL("libc.so.6", use_errno=True)
    for one in mapped(file):
        assert libc.madvise(ctypes.c_void_p(one.start), ctypes.c_size_t(len(one)), DONT_NEED) == 0


def torch_model(folder: str, dtype: str, tokens: int) -> dict[str, int]:
    """A torch target: loaded, then with a full cache."""
    from engine.models.own.target import load
    from engine.request import ModelSpec
    from engine.speculation.tree import chain

    held = {"dtype": "bfloat16", "weights": "int8"} if dtype == "int8" else {"dtype": dtype}
    warm = load(ModelSpec("warm", folder, **held))
    warm.feed(0, [1] * ROWS)  # the library's own kernels and threads
    warm.score([0], [chain([1] * ROWS)])
    del warm
    before = resident("RssAnon")
    with peak_of("RssAnon") as peak:
        target = load(ModelSpec("loaded", folder, **held))
    loaded = resident("RssAnon")
    loaded += sum(t.nbytes for t in plain_weights(target) if in_a_file(t, folder))
    for _ in range(tokens // ROWS):
        target.feed(0, [1] * ROWS)
    return {"weights": loaded - before, "cache": target.cache.nbytes, "peak": max(peak) - before}


def llama_model(file: str, tokens: int) -> dict[str, int]:
    """A GGUF target with a full cache, its prompt and trees read."""
    from engine.models.gguf.target import LlamaCppTarget
    from engine.request import ModelSpec
    from engine.speculation.tree import chain

    spec = ModelSpec("x", file, backend="llama_cpp", context=tokens, slots=1)
    chain([0])
    before = resident("VmRSS")
    target = LlamaCppTarget(spec)
    empty = resident("VmRSS") - before
    for _ in range(tokens // ROWS - 1):
        target.feed(0, [1] * ROWS)
    target.score([0], [chain([1] * 64)])
    drop_pages(file)  # a processor may have copied weights into a form of its own
    target.score([0], [chain([1] * 64)])
    return {"all": resident("VmRSS") - before, "empty": empty}


if __name__ == "__main__":
    kind, place, *rest = sys.argv[1:]
    found = (
        torch_model(place, rest[0], int(rest[1]))
        if kind == "torch"
        else llama_model(place, int(rest[0]))
    )
    sys.stdout.write(json.dumps(found) + "\n")
