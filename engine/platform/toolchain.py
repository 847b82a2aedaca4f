"""Compile llama.cpp with flags that avoid a bug and a slow spot of GCC; find them in its libraries.

What it does, 1: GCC before 11.5, 12.4, 13.3 and 14 reads 8 bytes in ``_tile_loadconfig`` where AMX
(Intel's matrix instructions) reads 64 (GCC bug 114098), and drops the code that writes the rest as
dead. llama.cpp multiplies 8- and 4-bit weights with AMX where the processor has it, and the process
then ends by a general protection fault. Without the passes that drop dead stores the same compilers
get it right.

What it does, 2: on x86 every GCC keeps the sums of the kernels for 4-bit weights on the stack;
``llama_cpp.cmake`` avoids that. Gain: passes of several rows, which verify drafts, take up to a third less.

Delete when: llama.cpp sets these flags itself, or its kernels are written so that GCC needs none.

Needs nothing but the standard library: set-up imports it before anything is installed.
"""

import re
import shlex
import shutil
from pathlib import Path

COMPILERS = ("c++", "g++", "clang++", "cl")
MARK = b"-fno-tree-dse"
# the last one leaves MARK in the library
BUILD_FLAGS = f"{MARK.decode()} -fno-dse -frecord-gcc-switches"
ORDER = Path(__file__).with_name("llama_cpp.cmake")
ORDER_ARGUMENT = shlex.quote(f"-DCMAKE_PROJECT_ggml_INCLUDE={ORDER}")  # as CMAKE_ARGS takes it
REORDER = (
    f'CMAKE_ARGS="{ORDER_ARGUMENT}" python -m pip install --no-cache-dir --force-reinstall --no-deps '
    "llama-cpp-python"
)
REBUILD = f'CXXFLAGS="{BUILD_FLAGS}" {REORDER}'  # on a processor with AMX
AMX = "amx_int8"  # as Linux lists it
_MENDED = {11: 5, 12: 4, 13: 3}  # release -> the first update without the bug
_OTHER = b"clang version"
_ORDER_MARK = b"sched-pressure-algorithm"  # ``llama_cpp.cmake`` leaves it in the library
_KERNEL = b"ggml_gemm_q4_K_8x8_q8_K"
_COMPILER = re.compile(rb"GCC: \([^)]*\) (\d+)\.(\d+)")


def compiler_found() -> bool:
    """Whether this machine has a C++ compiler."""
    return any(map(shutil.which, COMPILERS))


def left_out_by(library: bytes) -> str:
    """The compiler that left AMX's set-up out of this shared library, e.g. "GCC 12.2"; "": none did.

    A library names the compilers of all its parts, the C runtime's too: Clang counts, then the newest.
    """
    if MARK in library or _OTHER in library:
        return ""
    release, update = max(((int(a), int(b)) for a, b in _COMPILER.findall(library)), default=(0, 0))
    mended = release == 0 or release > max(_MENDED) or update >= _MENDED.get(release, update + 1)
    return "" if mended else f"GCC {release}.{update}"


def spills(library: bytes) -> bool:
    """Whether this x86 library has kernels whose sums GCC put on the stack."""
    if _ORDER_MARK in library or _OTHER in library:
        return False
    return _KERNEL in library and _COMPILER.search(library) is not None
