"""Resident source: every map in memory, for a limit that has room for all of them."""

from collections.abc import Iterator, Mapping

import torch
from safetensors import safe_open
from torch import Tensor

from engine.interfaces.target import Block, MapParts, Streaming
from engine.models.offload.memory_budget import MOST_ROWS


def open_resident(streaming: Streaming) -> "Resident":
    """A source that reads all maps once; raises OSError's kin where a file cannot be read."""
    return Resident(joined(streaming))


class Resident:
    """Whole maps; nothing moves."""

    widest = MOST_ROWS
    streamed = 0
    waited = 0.0

    def __init__(self, maps: Mapping[tuple[int, str], Tensor]) -> None:
        """Take maps [out, in] by layer and name."""
        self._maps = dict(maps)
        self.whole = 1 + max(layer for layer, _ in self._maps)
        self.resident = sum(weight.nbytes for weight in self._maps.values())

    def blocks(self, layer: int, name: str) -> Iterator[Block]:
        """One block: the whole map."""
        yield Block(0, self._maps[layer, name])

    def close(self) -> None:
        """Nothing works in the background."""


def joined(streaming: Streaming) -> dict[tuple[int, str], Tensor]:
    """Every map in memory, in the type of the computation."""
    dtype, device = getattr(torch, streaming.dtype), torch.device(streaming.device)
    found: dict[str, Tensor] = {}
    wanted = {tensor for parts in streaming.maps for tensor in parts.tensors}
    for file in streaming.files:
        with safe_open(str(file), framework="pt", device="cpu") as shard:
            names = [n for n in shard.keys() if n in wanted]  # noqa: SIM118 - safe_open is no mapping
            found |= {name: shard.get_tensor(name) for name in names}

    def whole(parts: MapParts) -> Tensor:
        return torch.cat([found.pop(name) for name in parts.tensors]).to(device, dtype)

    return {(parts.layer, parts.name): whole(parts) for parts in streaming.maps}
