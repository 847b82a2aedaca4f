"""The RAM source's ring, with copies done by stand-ins: no device is needed to get the order right.

``Eager`` copies at once, and fails when that would overwrite a layer that is still computed from;
``Late`` copies as late as a stream may, when the layer is waited for.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.errors import ModelUnusable
from engine.models.offload.ram import PackedLayer, Ram, open_ram, open_resident, pack
from tests.engine.models.offload.conftest import LAYERS, Stored

CPU = torch.device("cpu")


class Eager:
    def __init__(self) -> None:
        self.computing: set[int] = set()
        self.copies = 0

    def copy(self, slot: int, target: Tensor, source: Tensor) -> None:
        assert slot not in self.computing
        target.copy_(source)
        self.copies += 1

    def acquire(self, slot: int) -> None:
        self.computing.add(slot)

    def release(self, slot: int) -> None:
        self.computing.remove(slot)


class Late(Eager):
    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, tuple[Tensor, Tensor]] = {}

    def copy(self, slot: int, target: Tensor, source: Tensor) -> None:
        assert slot not in self.computing
        target.zero_()
        self.waiting[slot] = target, source
        self.copies += 1

    def acquire(self, slot: int) -> None:
        if slot in self.waiting:
            target, source = self.waiting.pop(slot)
            target.copy_(source)
        super().acquire(slot)


@pytest.fixture
def layers(stored: Stored) -> list[PackedLayer]:
    return pack(stored.streaming, pinned=False)


@pytest.mark.parametrize("lane", [Eager, Late])
@pytest.mark.parametrize("stay", [0, 1, 3, LAYERS - 1])
def test_every_layer_is_right_and_is_copied_once_a_pass(
    stored: Stored, layers: list[PackedLayer], lane: type[Eager], stay: int
) -> None:
    mover = lane()
    size = len(layers[0].data)
    source = Ram(layers, mover, CPU, room=(stay + 2) * size)
    expected = stay if stay + 2 < LAYERS else LAYERS  # buffers are not needed when all fits
    assert source.whole == expected
    passes = 3
    for _ in range(passes):
        stored.check(source)
    moving = LAYERS - source.whole
    if moving > 2:  # one more: the first of the next pass is on its way already
        assert mover.copies == passes * moving + 1
    assert source.streamed == moving * size


@pytest.mark.parametrize("lane", [Eager, Late])
@pytest.mark.parametrize("order", [(5, 1, 4, 4, 0, 5), (3, 2, 1, 0), (2, 3, 0, 1, 2)])
def test_any_order_gives_the_right_weights(
    stored: Stored, layers: list[PackedLayer], lane: type[Eager], order: tuple[int, ...]
) -> None:
    source = Ram(layers, lane(), CPU, room=3 * len(layers[0].data))
    stored.check(source, order)


def test_less_room_than_two_layers_is_refused(layers: list[PackedLayer]) -> None:
    with pytest.raises(ModelUnusable, match="two layers of"):
        Ram(layers, Eager(), CPU, room=len(layers[0].data))


def test_without_a_cuda_device_it_says_so(stored: Stored) -> None:
    with pytest.raises(ModelUnusable, match="none here"):
        open_ram(replace(stored.streaming, device="cpu"))


def test_a_resident_map_comes_in_one_block(stored: Stored) -> None:
    source = open_resident(stored.streaming)
    stored.check(source)
    assert [block.first for block in source.blocks(0, "gate_up")] == [0]
    assert (source.streamed, source.whole) == (0, LAYERS)
    assert source.resident == sum(tensor.nbytes for tensor in stored.tensors.values())
