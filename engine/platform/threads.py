"""Keep the thread pools of torch, llama.cpp and NumPy from waiting for each other's cores.

What it does: each library has threads of its own, which look at a barrier in a loop ("spin") while
they wait. Here they sleep after 3,000 looks, and a library that runs next to another gets one thread.

Gain: the bundled model gave 16 to 41 tokens a second while a browser on the same two cores showed
them, with sleeping threads 23 to 97; a pass of a GGUF file took 94 to 1,000 ms, with sleeping threads
42 to 56, alone 26. How soon is a compromise: on one idle machine sleeping after 1,000 looks cost
nothing; on another, where a thread wakes up late, a 4-bit pass took 30 ms, after 3,000 looks 25 and
after 10,000 24. There, next to a program that used a whole core, it took 48, 55 and 78 ms, and 190
after 100,000. With two NumPy threads the first product after a pass took two milliseconds more.

Delete when: ``GOMP_SPINCOUNT`` is no longer read by torch's OpenMP (test_threads.py shows what is set),
or the libraries share one pool. Nothing heavy is imported here: ``sleep_soon`` comes before torch.
"""

import ctypes
from collections.abc import MutableMapping
from pathlib import Path

SPINS = "3000"  # looks at a barrier before a thread sleeps
OPENBLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def sleep_soon(environ: MutableMapping[str, str]) -> None:
    """Set OpenMP's spin count unless the user set it; read when torch or llama.cpp is loaded."""
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", SPINS)


def one_torch_thread() -> None:
    """Limit torch to one thread for the rest of the process: llama.cpp has threads of its own."""
    import torch

    torch.set_num_threads(1)


def one_openblas_thread() -> bool:
    """Limit NumPy's own OpenBLAS to one thread; False where NumPy uses another library."""
    import numpy as np

    folder = Path(np.__file__).resolve().parent.parent / "numpy.libs"
    for file in sorted(folder.glob("*openblas*")):
        library = ctypes.CDLL(str(file))  # NumPy has loaded it already
        for name in OPENBLAS_SETTERS:
            if hasattr(library, name):
                getattr(library, name)(1)
                return True
    return False
