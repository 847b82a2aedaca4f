"""Linear maps by small kernels in C, compiled on this machine: ``int8_rows.c``, ``bfloat16_rows.c``.

What it does: a call rounds the rows (to 8 bits or bfloat16), multiplies them and scales the sums, at the
rate at which memory gives the weights, and a row gets the same bits in passes of any width. torch's
operators read one row's weights at half to two thirds of that rate, take some fifteen more calls to round
rows to 8 bits, and sum bfloat16 in another order from 33 rows on. A kernel is compiled once for every
processor and kept; without a compiler torch's operators multiply (``onednn_int8``, ``onednn_linear``).

Gain, milliseconds of one row and of 16 on two cores with AMX, by torch and by the kernels: SmolLM2-135M in
bfloat16 50 and 55, 36 and 41; Qwen2.5-0.5B in bfloat16 86 and 90, 78 and 88; in int8 60 and 70, 31 and 45.
Prompts take about as long by either. On two EPYC cores with AVX-512, SmolLM2 in bfloat16: 24 and 32, 17 and 27;
a prompt of 256 tokens 190 and 210.

Delete when: torch reads one row's weights at memory's rate and rounds rows itself
(test_native_linear.py).
"""

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.decoder import Dense, Linear
from engine.platform.instructions import all_instructions, instruction_sets, multiplies_int8

FOLDER = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC",
    "-fno-tree-dse", "-fno-dse",  # GCC before 12.4 drops what only a tile reads
    "-ffp-contract=off",  # a row's last bit must not depend on which loop a number falls into
)  # fmt: skip
COMPILE_SECONDS = 60
BFLOAT16 = frozenset({"amx_bf16", "avx512_bf16"})
ADDRESS, LONG, INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int

Kernel = TypeVar("Kernel")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NativeLinear:
    """A linear map over a weight in a kernel's blocks."""

    kernel: Callable[..., int]  # of the library; 0: no memory
    weight: Tensor  # [blocks, inputs together, lanes, several inputs], both filled up
    others: tuple[Tensor | None, ...]  # what the kernel reads after it, [out] float32 each
    ends: tuple[int, ...]  # its last arguments
    inputs: int
    outputs: int

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], both in one type; sums in float32."""
        rows = x.reshape(-1, self.inputs).float().contiguous()
        found = torch.empty(len(rows), self.outputs)
        read = [None if each is None else each.data_ptr() for each in (self.weight, *self.others)]
        shape = (len(rows), self.inputs, self.outputs)
        ends = (found.data_ptr(), torch.get_num_threads(), *self.ends)
        if not self.kernel(rows.data_ptr(), *shape, *read, *ends):
            raise MemoryError(f"no memory for {len(rows)} rounded rows of {self.inputs} numbers")
        return found.to(x.dtype).view(*x.shape[:-1], -1)


class Int8Kernel:
    """Multiplies rows by int8 weights."""

    def __init__(self, library: Path) -> None:
        """Raises OSError for a file that is no library of this processor."""
        self._library = ctypes.CDLL(str(library))
        self._library.linear.argtypes = [ADDRESS, LONG, LONG, LONG, *[ADDRESS] * 5, INT, INT]
        self._ends = (int(self._library.has_tiles()),)

    def map(self, levels: Tensor, scale: Tensor, bias: Tensor | None) -> NativeLinear:
        """int8 [out, in] with a scale [out] for each output; bias [out] float32."""
        outputs, inputs = levels.shape
        others = (scale, levels.sum(1, dtype=torch.int32).float(), bias)
        weight = _blocks(levels, self._library, 4)
        return NativeLinear(self._library.linear, weight, others, self._ends, inputs, outputs)


class Bfloat16Kernel:
    """Multiplies rows by bfloat16 weights."""

    def __init__(self, library: Path) -> None:
        """Raises OSError for a file that is no library of this processor, or has no leave to use tiles."""
        self._library = ctypes.CDLL(str(library))
        if not self._library.runs_here():
            raise OSError("the system does not permit the use of AMX tiles")
        self._library.linear.argtypes = [ADDRESS, LONG, LONG, LONG, *[ADDRESS] * 3, INT]

    def map(self, linear: Linear) -> Linear:
        """A plain map in blocks; any other stays what it is."""
        if not isinstance(linear, Dense):
            return linear
        outputs, inputs = linear.weight.shape
        bias = None if linear.bias is None else linear.bias.float()
        weight = _blocks(linear.weight, self._library, 2)
        return NativeLinear(self._library.linear, weight, (bias,), (), inputs, outputs)


def _blocks(weight: Tensor, library: ctypes.CDLL, together: int) -> Tensor:
    """A weight [out, in] in blocks of lanes, ``together`` inputs of every output side by side."""
    lanes, width = int(library.lanes_of_a_block()), int(library.inputs_of_a_block())
    outputs, inputs = weight.shape
    missing = (0, -inputs % width, 0, -outputs % lanes)
    filled = F.pad(weight, missing) if any(missing) else weight
    parted = filled.view(-1, lanes, filled.shape[1] // together, together)
    return parted.transpose(1, 2).contiguous()


def int8_kernel(cache: Path | None = None) -> Int8Kernel | None:
    """The kernel, compiled at the first call on a machine; None where that cannot be.

    ``cache``: where libraries are kept; None: in the user's own cache folder.
    """
    if not multiplies_int8():
        return None
    library = _compiled("int8_rows.c", cache)
    return None if library is None else _loaded(Int8Kernel, library)


def bfloat16_kernel(cache: Path | None = None) -> Bfloat16Kernel | None:
    """The same for bfloat16, on processors with AMX or AVX-512 that multiply it."""
    if BFLOAT16.isdisjoint(instruction_sets()):
        return None
    library = _compiled("bfloat16_rows.c", cache)
    return None if library is None else _loaded(Bfloat16Kernel, library)


def _loaded(kind: Callable[[Path], Kernel], library: Path) -> Kernel | None:
    try:
        return kind(library)
    except OSError as error:
        log.warning("%s cannot be used, torch multiplies instead: %s", library, error)
        return None


def _compiled(name: str, cache: Path | None) -> Path | None:
    compiler = next((path for each in COMPILERS if (path := shutil.which(each))), None)
    if compiler is None:
        return None
    try:
        return _library(compiler, FOLDER / name, cache or _own_cache())
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        log.warning("%s could not be compiled, torch multiplies instead: %s", name, error)
        return None


def _own_cache() -> Path:
    return Path.home() / ".cache" / "slipstream"


def _library(compiler: str, source: Path, cache: Path) -> Path:
    """The compiled file, whose name changes with sources, flags, compiler and processor."""
    sources = (each.read_text(encoding="utf-8") for each in (source, FOLDER / "tiles.h"))
    made_of = (*sources, *FLAGS, compiler, all_instructions())
    digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    library = cache / f"{source.stem}-{digest}.so"
    if library.exists():
        return library
    cache.mkdir(parents=True, exist_ok=True)
    fresh = cache / f"{library.name}.{os.getpid()}"
    command = [compiler, *FLAGS, "-o", str(fresh), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_SECONDS)
    fresh.replace(library)
    return library
