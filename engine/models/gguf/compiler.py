"""C++ compilers: whether one is there to build llama.cpp, and those that leave the set-up of AMX out.

AMX are Intel's matrix instructions. GCC before 11.5, 12.4, 13.3 and 14 takes ``_tile_loadconfig`` to read 8 bytes where it reads 64 (GCC
bug 114098), and drops the code that writes the rest as dead. Where a processor has AMX, llama.cpp
multiplies 8- and 4-bit weights with it, and there the process ends by a general protection fault.
Without the passes that drop dead stores the same compilers get it right.

Nothing but the standard library is needed here: set-up asks before anything is installed.
"""

import re
import shutil

COMPILERS = ("c++", "g++", "clang++", "cl")
MARK = b"-fno-tree-dse"
# the last one leaves MARK in the library
BUILD_FLAGS = f"{MARK.decode()} -fno-dse -frecord-gcc-switches"
REBUILD = (
    f'CXXFLAGS="{BUILD_FLAGS}" python -m pip install --no-cache-dir --force-reinstall --no-deps '
    "llama-cpp-python"
)
AMX = "amx_int8"  # as Linux lists it
_MENDED = {11: 5, 12: 4, 13: 3}  # release -> the first update without the bug
_OTHER = b"clang version"
_COMPILER = re.compile(rb"GCC: \([^)]*\) (\d+)\.(\d+)")


def compiler_found() -> bool:
    """Whether this machine has a C++ compiler."""
    return any(map(shutil.which, COMPILERS))


def left_out_by(library: bytes) -> str:
    """The compiler that left AMX's set-up out of this shared library, as "GCC 12.2"; empty: none did.

    A library names the compilers of all its parts. Those of the C runtime may be older or others than
    what compiled the rest: Clang counts, then the newest.
    """
    if MARK in library or _OTHER in library:
        return ""
    release, update = max(((int(a), int(b)) for a, b in _COMPILER.findall(library)), default=(0, 0))
    mended = release == 0 or release > max(_MENDED) or update >= _MENDED.get(release, update + 1)
    return "" if mended else f"GCC {release}.{update}"
