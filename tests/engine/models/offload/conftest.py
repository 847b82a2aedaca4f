"""Real safetensors files of a few megabytes, and how a source is described."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.interfaces.target import LayerSource, MapParts, Streaming

LAYERS, WIDTH, FORWARD = 6, 256, 1100
MEGABYTE = 1 << 20
LIMIT = 16 * MEGABYTE


@dataclass(frozen=True)
class Stored:
    """Tensors, their files, and the maps that they make up."""

    tensors: dict[str, Tensor]
    streaming: Streaming

    def map(self, layer: int, name: str) -> Tensor:
        """A map as it should come out."""
        parts = next(m for m in self.streaming.maps if (m.layer, m.name) == (layer, name))
        return torch.cat([self.tensors[tensor] for tensor in parts.tensors])

    def check(self, source: LayerSource, layers: Iterable[int] = range(LAYERS)) -> None:
        """Every map of the layers, put together from its blocks, is right, and no row comes twice."""
        for layer, name in product(layers, ("gate_up", "down")):
            wanted = self.map(layer, name)
            found = torch.full_like(wanted, torch.nan)
            for block in source.blocks(layer, name):
                part = found[block.first : block.first + len(block.weight)]
                assert part.isnan().all()
                part.copy_(block.weight)
            assert torch.equal(found, wanted)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """Six layers of one map in two tensors and one in a single tensor, a shard each."""
    generator = torch.Generator().manual_seed(3)
    tensors, files, maps = {}, [], []
    for layer in range(LAYERS):
        shapes = {"gate": (FORWARD, WIDTH), "up": (FORWARD, WIDTH), "down": (WIDTH, FORWARD)}
        own = {
            f"{layer}.{name}": torch.randn(shape, generator=generator)
            for name, shape in shapes.items()
        }
        files.append(tmp_path / f"{layer}.safetensors")
        # an odd vector in front, so that no matrix begins at a page
        save_file({f"{layer}.a_vector": torch.ones(layer + 3), **own}, files[-1])
        maps.append(MapParts(layer, "gate_up", (f"{layer}.gate", f"{layer}.up")))
        maps.append(MapParts(layer, "down", (f"{layer}.down",)))
        tensors |= own
    streaming = Streaming(
        tuple(files),
        tuple(maps),
        limit=LIMIT,
        fixed=0,
        row_bytes=1024,
        dtype="float32",
        device="cpu",
    )
    return Stored(tensors, streaming)
