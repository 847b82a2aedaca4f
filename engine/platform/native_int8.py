"""Multiply 8-bit rows by 8-bit weights (W8A8) with a small kernel in C, compiled on this machine.

What it does: ``int8_rows.c`` rounds the rows, multiplies and scales in one call, at the rate at which
memory gives the weights. torch's operator for it reads half as fast for one row, and some fifteen calls
around it round and scale (``onednn_int8``). It is compiled once for every processor and kept; where there
is no compiler, torch's operator does the same.

Gain: GAIN

Delete when: torch has one call for it that takes a scale per row and reads at memory's rate
(test_native_int8.py).
"""

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.platform.instructions import instruction_sets, multiplies_int8

SOURCE = Path(__file__).with_name("int8_rows.c")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC",
    "-fno-tree-dse", "-fno-dse",  # GCC before 12.4 drops what only a tile reads
    "-ffp-contract=off",  # a row's last bit must not depend on which loop a number falls into
)  # fmt: skip
COMPILE_SECONDS = 60
ADDRESS, LONG = ctypes.c_void_p, ctypes.c_long

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NativeLinear:
    """A linear map over an int8 weight in the kernel's blocks."""

    kernel: "Int8Kernel"
    weight: Tensor  # int8 [blocks, inputs / 4 filled up, lanes, 4]
    scale: Tensor  # [out] float32
    total: Tensor  # [out] float32: the sum of an output's rounded weights
    inputs: int
    bias: Tensor | None = None  # [out] float32

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], both in one type; computed in float32."""
        rows = x.reshape(-1, self.inputs).float().contiguous()
        found = torch.empty(len(rows), len(self.scale))
        done = self.kernel.linear(
            rows.data_ptr(),
            len(rows),
            self.inputs,
            len(self.scale),
            self.weight.data_ptr(),
            self.scale.data_ptr(),
            self.total.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            found.data_ptr(),
            torch.get_num_threads(),
            self.kernel.tiles,
        )
        if not done:
            raise MemoryError(f"no memory for {len(rows)} rounded rows of {self.inputs} numbers")
        return found.to(x.dtype).view(*x.shape[:-1], -1)


class Int8Kernel:
    """The compiled kernel."""

    def __init__(self, library: Path) -> None:
        """Raises OSError for a file that is no library of this processor."""
        found = ctypes.CDLL(str(library))
        self.linear = found.linear
        self.linear.restype = ctypes.c_int
        self.linear.argtypes = [
            ADDRESS, LONG, LONG, LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS, ctypes.c_int,
            ctypes.c_int,
        ]  # fmt: skip
        self.tiles = int(found.has_tiles())
        self._lanes, self._inputs = found.lanes_of_a_block(), found.inputs_of_a_block()

    def map(self, levels: Tensor, scale: Tensor, bias: Tensor | None) -> NativeLinear:
        """int8 [out, in] with a scale [out] for each output."""
        outputs, inputs = levels.shape
        filled = F.pad(levels, (0, -inputs % self._inputs, 0, -outputs % self._lanes))
        blocks = filled.view(-1, self._lanes, filled.shape[1] // 4, 4).transpose(1, 2).contiguous()
        total = levels.sum(1, dtype=torch.int32).float()
        return NativeLinear(self, blocks, scale, total, inputs, bias)


def int8_kernel(cache: Path | None = None) -> Int8Kernel | None:
    """The kernel, compiled at the first call on a machine; None where that cannot be.

    ``cache``: where libraries are kept; None: in the user's own cache folder.
    """
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None or not multiplies_int8():
        return None
    try:
        return Int8Kernel(_library(compiler, cache or _own_cache()))
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("the int8 kernel could not be compiled, torch's own is used: %s", error)
        return None


def _own_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipstream"


def _library(compiler: str, cache: Path) -> Path:
    """The compiled file, whose name changes with source, flags, compiler and processor."""
    made_of = (SOURCE.read_text(encoding="utf-8"), *FLAGS, compiler, *instruction_sets())
    name = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    library = cache / f"int8_rows-{name}.so"
    if library.exists():
        return library
    cache.mkdir(parents=True, exist_ok=True)
    fresh = cache / f"{library.name}.{os.getpid()}"
    command = [compiler, *FLAGS, "-o", str(fresh), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_SECONDS)  # noqa: S603
    fresh.replace(library)
    return library
