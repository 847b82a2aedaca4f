"""Where each tensor's bytes lie inside safetensors files, without reading any of them."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelUnusable

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True, slots=True)
class TensorRange:
    """A row-major matrix [rows, columns] from byte ``start`` of a file."""

    file: Path
    start: int
    rows: int
    columns: int
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.columns * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes of the matrix."""
        return self.rows * self.row_bytes


def locate(files: Sequence[Path]) -> dict[str, TensorRange]:
    """Every matrix of these files by name; vectors are left out. Raises ModelUnusable."""
    found: dict[str, TensorRange] = {}
    for file in files:
        found |= dict(_matrices(file))
    return found


def _matrices(file: Path) -> Iterator[tuple[str, TensorRange]]:
    """Tensors of two dimensions and a type that can be computed with."""
    try:
        with safe_open(str(file), framework="pt", device="cpu"):
            pass  # it checks that offsets are in order and that the file is as long as they say
        with file.open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            header = json.loads(raw.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelUnusable(f"{file}: not a readable safetensors file: {error}") from error
    for name, entry in header.items():
        if name != "__metadata__" and len(entry["shape"]) == 2 and entry["dtype"] in DTYPES:
            begin, end = entry["data_offsets"]
            rows, columns = entry["shape"]
            found = TensorRange(file, 8 + length + begin, rows, columns, DTYPES[entry["dtype"]])
            if found.size == end - begin and math.prod(entry["shape"]):
                yield name, found
