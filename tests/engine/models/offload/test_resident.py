"""The resident source: the same interface over maps that are simply there."""

import torch

from engine.models.offload.resident import open_resident
from tests.engine.models.offload.conftest import LAYERS, Stored


def test_every_map_comes_in_one_block(stored: Stored) -> None:
    source = open_resident(stored.streaming)
    for layer in range(LAYERS):
        for name in ("gate_up", "down"):
            (block,) = source.blocks(layer, name)
            assert block.first == 0
            assert torch.equal(block.weight, stored.map(layer, name))
    assert (source.streamed, source.whole) == (0, LAYERS)
    assert source.resident == sum(tensor.nbytes for tensor in stored.tensors.values())
