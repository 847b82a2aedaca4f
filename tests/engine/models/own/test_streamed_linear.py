"""Streamed maps: the same maps as those whose weights lie in memory, however they are cut."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.interfaces.target import Block
from engine.models.own.streamed_linear import LONG, Scratch, StreamedFeedForward, StreamedMap
from engine.platform.upcast_linear import Widening

WIDTH, FORWARD = 48, 112


class Cut:
    """A source whose maps come in blocks of a few rows, each overwriting the one before."""

    widest, whole, streamed, resident, waited = 64, 0, 0, 0, 0.0

    def __init__(self, maps: dict[str, Tensor], size: int) -> None:
        self.maps, self.size = maps, size

    def blocks(self, layer: int, name: str) -> Iterator[Block]:
        weight = self.maps[name]
        buffer = torch.empty(self.size, weight.shape[1], dtype=weight.dtype)
        for first in range(0, len(weight), self.size):
            part = weight[first : first + self.size]
            buffer[: len(part)] = part
            yield Block(first, buffer[: len(part)])
            buffer.fill_(torch.nan)

    def close(self) -> None:
        """Nothing to end."""


def weights(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    shapes = {"gate_up": (2 * FORWARD, WIDTH), "down": (WIDTH, FORWARD)}
    return {n: torch.randn(s, generator=generator).to(dtype) for n, s in shapes.items()}


def streamed(source: Cut, name: str, *, bias: Tensor | None = None) -> StreamedMap:
    return StreamedMap(source, 0, name, len(source.maps[name]), Widening(), bias=bias)


@pytest.mark.parametrize("size", [7, 64, 1000])
@pytest.mark.parametrize("shape", [(1,), (3,), (8,), (40,), (2, 9)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_map_in_blocks_is_the_map(size: int, shape: tuple[int, ...], biased: bool) -> None:
    maps = weights()
    bias = torch.linspace(-1, 1, 2 * FORWARD) if biased else None
    x = torch.randn(*shape, WIDTH)
    found = streamed(Cut(maps, size), "gate_up", bias=bias)(x)
    torch.testing.assert_close(found, F.linear(x, maps["gate_up"], bias), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [9, FORWARD, FORWARD + 1, 1000])  # blocks across gate's end, too
@pytest.mark.parametrize("rows", [1, 33])
def test_the_joined_part_is_the_two_maps_one_after_the_other(size: int, rows: int) -> None:
    maps, bias = weights(), torch.linspace(-1, 1, 2 * FORWARD)
    source = Cut(maps, size)
    joined = StreamedFeedForward(
        streamed(source, "gate_up", bias=bias), streamed(source, "down"), Scratch()
    )
    for count in (rows, rows + 5, 2):  # the scratch is shared by wider and narrower passes
        x = torch.randn(count, WIDTH)
        gate, up = F.linear(x, maps["gate_up"], bias).chunk(2, -1)
        wanted = F.linear(F.silu(gate) * up, maps["down"])
        with torch.inference_mode():
            torch.testing.assert_close(joined(x), wanted, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("inputs", [4096, 10_000])  # whole parts, and a rest
@pytest.mark.parametrize("rows", [1, 20])
def test_long_rows_are_multiplied_in_parts(inputs: int, rows: int) -> None:
    weight = torch.randn(30, inputs)
    x = torch.randn(inputs, rows).t()  # as the joined part hands it on
    source = Cut({"down": weight}, 7)
    assert inputs >= LONG * 7
    for given in (x, x.contiguous()):
        found = streamed(source, "down")(given)
        torch.testing.assert_close(found, F.linear(x, weight), atol=2e-3, rtol=1e-3)


def test_stored_halves_are_multiplied_in_the_type_of_the_rows() -> None:
    maps = weights(torch.bfloat16)
    x = torch.randn(12, WIDTH)
    found = streamed(Cut(maps, 50), "down")(torch.randn(12, FORWARD))
    assert found.dtype == torch.float32
    wanted = F.linear(x, maps["gate_up"].float())
    assert torch.allclose(streamed(Cut(maps, 50), "gate_up")(x), wanted, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 7, 8, 40])
@pytest.mark.parametrize("widening", [None, Widening()])
def test_rows_of_halves_give_halves_on_any_processor(rows: int, widening: Widening | None) -> None:
    """In float32 they are rounded at the end alone, else after every map."""
    maps = weights(torch.bfloat16)
    source = Cut(maps, 50)
    down = StreamedMap(source, 0, "down", WIDTH, widening)
    joined = StreamedFeedForward(
        StreamedMap(source, 0, "gate_up", 2 * FORWARD, widening), down, Scratch()
    )
    x = torch.randn(rows, WIDTH).bfloat16()
    gate, up = F.linear(x.double(), maps["gate_up"].double()).chunk(2, -1)
    wanted = F.linear(F.silu(gate) * up, maps["down"].double())
    with torch.inference_mode():
        found = joined(x)
    assert found.dtype == torch.bfloat16
    difference = (found.double() - wanted).abs().max() / wanted.abs().max()
    assert difference < (0.02 if widening is None else 0.005)
