"""Run in a process of its own: what loading and using a model adds to memory, as one JSON line.

Arguments: torch, folder, dtype, tokens; or llama_cpp, file, tokens. Memory is what the process
cannot give back: file pages that the system may drop at any time are left out, but for those of
weights that llama.cpp reads in place.
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

ROWS = 256


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


def torch_model(folder: str, dtype: str, tokens: int) -> dict[str, int]:
    """A torch target: loaded, then with a full cache."""
    from engine.decode.tree import chain
    from engine.models.torch_target import load_target

    warm = load_target(Path("engine/bundled/pocket-draft"), dtype, "cpu")
    warm.feed(0, [1] * ROWS)  # the library's own kernels and threads
    warm.score([0], [chain([1] * ROWS)])
    del warm
    before = resident("RssAnon")
    with peak_of("RssAnon") as peak:
        target = load_target(Path(folder), dtype, "cpu")
    loaded = resident("RssAnon")
    table = target._weights.embedding
    if table.untyped_storage().nbytes() > table.nbytes:  # a view into the file's pages
        loaded += table.nbytes
    for _ in range(tokens // ROWS):
        target.feed(0, [1] * ROWS)
    cache = sum(t.nbytes for row in target.cache._slots.values() for t in (*row.keys, *row.values))
    return {"weights": loaded - before, "cache": cache, "peak": max(peak) - before}


def llama_model(file: str, tokens: int) -> dict[str, int]:
    """A GGUF target with a full cache, its prompt and trees read."""
    from engine.decode.tree import chain
    from engine.models.gguf.target import LlamaCppTarget
    from engine.request import ModelSpec

    spec = ModelSpec("x", file, backend="llama_cpp", context=tokens, slots=1)
    chain([0])
    before = resident("VmRSS")
    target = LlamaCppTarget(spec)
    for _ in range(tokens // ROWS - 1):
        target.feed(0, [1] * ROWS)
    target.score([0], [chain([1] * 64)])
    return {"all": resident("VmRSS") - before}


if __name__ == "__main__":
    kind, place, *rest = sys.argv[1:]
    found = (
        torch_model(place, rest[0], int(rest[1]))
        if kind == "torch"
        else llama_model(place, int(rest[0]))
    )
    sys.stdout.write(json.dumps(found) + "\n")
