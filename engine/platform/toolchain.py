"""Compile llama.cpp so that it is right, exact and fast; see in its libraries how it was compiled.

What it does, 1: GCC before 11.5, 12.4, 13.3 and 14 reads 8 bytes in ``_tile_loadconfig`` where AMX
(Intel's matrix instructions) reads 64 (GCC bug 114098), and drops the code that writes the rest as
dead. llama.cpp multiplies 8- and 4-bit weights with AMX where the processor has it, and the process
then ends by a general protection fault. Without the passes that drop dead stores the same compilers
get it right.

What it does, 2: on x86 every GCC keeps the sums of the kernels for 4-bit weights on the stack;
``llama_cpp.cmake`` avoids that. Gain: passes of several rows, which verify drafts, take up to a third less.

What it does, 3: on x86 a row of K-quants has other bits alone than among four or eight, because other
kernels round in other places. ``llama_cpp.cmake`` changes where the kernels for one row round. Gain:
drafts of any length are verified in one pass, and the answer stays plain's. Q5_K's few rows take up
to 15 % longer, Q4_K's and Q6_K's do not. The tiled kernels for the other types are switched off.

What it does, 4: several rows with weights of Q4_1, Q5_0 and Q8_0 go through kernels of our own
(``llama_cpp_rows.h``). Gain, passes of AVX-512 with llama.cpp's kernels and with these, milliseconds:

    rows                              1      2      4      8     16    128 (prompt)
    SmolLM2-135M Q4_1, llama.cpp's    7.7   13.4   18.9   31.0   59.3   448
    with ours                         7.2    7.0    9.5   15.8   29     210
    Qwen2.5-Coder-0.5B Q4_K_M         20.1   37.8   49.5   83.3  120.5   803
    with ours                         20.4   23.0   32.1   60     95     620

What it does, 5: one row with weights of F32, F16 and BF16 is added up in the order in which several
rows are. Such weights are in files of 16 bits, and in 4-bit ones as routers of experts and RWKV's small
maps. Gain: those files are drafted for, where ``exact`` left them to plain decoding.

What it does, 6: layers with a gated delta rule (Qwen 3.5 and later) keep the states behind the rows of a
pass, and no copies of older ones. Gain: a tenth of a plain pass of a small model.

What it does, 7: with AVX2, attention over a float16 cache goes through a kernel of our own
(``llama_cpp_attention.h``), whose rows are alike in every pass. Gain: ``exact`` costs nothing on processors
that do not multiply bfloat16. Two cores with AVX2, SmolLM2 Q4_1, milliseconds, the best of four runs each:

    rows                                        1      4     16   1500 (prompt)
    after 64 tokens, llama.cpp's usual way    7.5   16.3   47.8
    with ours                                 6.6   14.9   44.0
    after 1500, llama.cpp's usual way        13.3   25.9   71.0   4100
    with ours                                13.2   24.5   75.5   3998
    after 1500, its exact way (8 bits)       19.2   59.4  205.7   9404

Delete when: llama.cpp sets these flags itself, its kernels round a row alike in every pass, and no
row of these types costs more than a fifth of a pass.

Needs nothing but the standard library: set-up imports it before anything is installed.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

COMPILERS = ("c++", "g++", "clang++", "cl")
MARK = b"-fno-tree-dse"
# the last one leaves MARK in the library
BUILD_FLAGS = f"{MARK.decode()} -fno-dse -frecord-gcc-switches"
ORDER = Path(__file__).with_name("llama_cpp.cmake")
OWN_KERNELS = tuple(map(ORDER.with_name, ("llama_cpp_rows.h", "llama_cpp_attention.h")))
"""What it puts into llama.cpp."""
ORDER_ARGUMENT = shlex.quote(f"-DCMAKE_PROJECT_ggml_INCLUDE={ORDER}")  # as CMAKE_ARGS takes it
PIP = f"{shlex.quote(sys.executable)} -m pip install"  # into this environment, whether it is active or not
GGUF_SUPPORT = f"{PIP} 'slipstream[gguf]'"  # elsewhere, that name is another project's
REORDER = f'CMAKE_ARGS="{ORDER_ARGUMENT}" {PIP} --no-cache-dir --force-reinstall --no-deps llama-cpp-python'
REBUILD = f'CXXFLAGS="{BUILD_FLAGS}" {REORDER}'  # on a processor with AMX
AMX = "amx_int8"  # as Linux lists it
_MENDED = {11: 5, 12: 4, 13: 3}  # release -> the first update without the bug
_OTHER = b"clang version"
_ORDER_MARK = b"sched-pressure-algorithm"  # ``llama_cpp.cmake`` leaves it in the library
_KERNEL = b"ggml_gemm_q4_K_8x8_q8_K"
_ROUNDING_MARK = (
    b"slipstream: one row of K-quants rounds as eight do"  # ``llama_cpp.cmake`` leaves it
)
_ATTENTION_MARK = b"slipstream: rows of attention over float16 are alike"
TILED_SWITCH = "GGML_CPU_TILED_MM"  # read by llama.cpp at its first product; "0": no tiled kernels
_ROUND_ALIKE = frozenset({"q4_k", "q5_k", "q6_k"})
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


def rounds_apart(library: bytes) -> bool:
    """Whether this x86 library's kernels for one row of K-quants round unlike those for eight."""
    return _KERNEL in library and not rounds_alike(library)


def rounds_alike(library: bytes) -> bool:
    """Whether ``llama_cpp.cmake`` changed this library's kernels."""
    return _ROUNDING_MARK in library


def attends_alike(library: bytes) -> bool:
    """Whether attention over a float16 cache rounds a row alike in every pass of this library."""
    return _ATTENTION_MARK in library


def tiled_apart(types: Collection[str], *, changed: bool) -> bool:
    """Whether tiled kernels round weights of one of these types unlike the kernels for one row.

    They multiply eight rows and more of K-quants and of most "iq" types; ``changed`` tells whether
    the library has our changes.
    """
    tiled = {name for name in types if name.endswith("_k") or name.startswith("iq")} - {"iq4_nl"}
    return bool(tiled - (_ROUND_ALIKE if changed else frozenset()))
