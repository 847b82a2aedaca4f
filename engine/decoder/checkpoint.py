"""A folder's safetensors files, read tensor by tensor; nothing else is ever opened."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.decoder.config import read_index, weight_files
from engine.errors import ModelUnusable

PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})
PLAIN_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Checkpoint:
    """The tensors of a folder by name; headers are read at once, data in ``read``."""

    def __init__(self, folder: Path) -> None:
        """Open every shard; raises ModelUnusable for one that is missing, damaged or outside."""
        self.folder = folder
        self._shards: dict[str, Any] = {}  # tensor name -> open file
        self.files: list[Path] = []
        wanted = read_index(folder)
        for file in weight_files(folder):
            self._open(file)
        if lost := sorted(set(wanted) - set(self._shards)):
            raise ModelUnusable(
                f"{folder}: the index names {len(lost)} tensors that no file holds, {lost[0]} "
                "first; download the model again"
            )

    @property
    def names(self) -> frozenset[str]:
        """All tensors."""
        return frozenset(self._shards)

    def shape(self, name: str) -> tuple[int, ...]:
        """The stored shape, without reading the data."""
        return tuple(self._shards[name].get_slice(name).get_shape())

    def read(
        self, names: Iterable[str], dtype: torch.dtype, device: torch.device
    ) -> dict[str, Tensor]:
        """These tensors, converted; names that the folder lacks are left out."""
        found = {}
        for name in names:
            if name not in self._shards:
                continue
            tensor = self._shards[name].get_tensor(name)
            if tensor.dtype not in PLAIN_TYPES:
                raise ModelUnusable(
                    f"{self.folder}: tensor {name} is stored as {str(tensor.dtype)[6:]}; only "
                    "float32, bfloat16, float16 and float64 are supported"
                )
            found[name] = tensor.to(device, dtype)
        return found

    def _open(self, file: Path) -> None:
        if not file.is_file():
            raise ModelUnusable(_absence(file))
        try:
            shard: Any = safe_open(str(file), framework="pt", device="cpu")
        except (SafetensorError, OSError) as error:
            raise ModelUnusable(f"{file}: not a readable safetensors file: {error}") from error
        for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
            if name in self._shards:
                raise ModelUnusable(f"{file.parent}: two files hold the tensor {name}")
            self._shards[name] = shard
        self.files.append(file)


def _absence(file: Path) -> str:
    """Why a file that should be there is not, as far as the folder shows."""
    pickles = sorted(f.name for f in file.parent.glob("*") if f.suffix in PICKLES)
    if pickles and not any(file.parent.glob("*.safetensors")):
        return (
            f"{file.parent}: the weights are in {pickles[0]}, a format that can run code when it "
            "is opened; get the model as *.safetensors"
        )
    return f"{file} is missing; download the model again"
