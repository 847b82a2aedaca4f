"""Multiply by 16-bit weights in float32, block by block, where the processor lacks the 16-bit type.

What it does: torch multiplies several rows by such weights one row at a time there. Here a block of
the weight is converted to float32 and multiplied while it is in the processor's cache. A single row
stays with torch: it takes as long as reading the weights, half of what float32 takes. So do the rows
of a draft where they must round as plain decoding does; prompts are read in blocks.

Gain, milliseconds for an 8192 x 2048 bfloat16 map with 1, 2, 4, 8, 16 and 64 rows on two cores with
AVX2 alone: by torch 3.2, 4.8, 7.7, 15, 29 and 136, in blocks 7.4, 8.6, 9.7, 9.1, 9.5 and 31; in
float32, packed, 5.3, 6.2, 6.8, 7.7, 12 and 27. Up to how many rows torch is faster is measured once
for every model.

Delete when: torch multiplies 64 such rows in less than a third of 64 single rows' time, or processors
without AVX512-BF16 are no longer supported.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.decoder import EXACT_ROWS, Dense, Linear
from engine.platform.onednn_linear import TRIAL, OneDnnLinear, can_pack

SMALL = 2**17  # weights of a map that is faster plain
BLOCK = 2**20  # weights of a block
TRIED = (1, 2, 3, 4, 6, 8, 12, 16)  # rows
TRIALS = 3  # of each, alternating
EVERY = 2**31  # rows: no limit

Timed = Callable[[int], tuple[float, float]]
"""Rows -> seconds of a product, plain and in blocks."""


class Widening:
    """Float32 memory for one block of a narrower weight; the maps of a model share it."""

    def __init__(self) -> None:
        self._block = torch.empty(BLOCK)
        # oneDNN takes the block for the batch, and the rows for the weight
        self.swaps = can_pack(torch.device("cpu"), torch.float32)

    def blocks(self, weight: Tensor) -> Iterator[tuple[int, Tensor]]:
        """A weight [out, in] in float32 in runs of rows, each with its first; valid until the next."""
        if weight.dtype == torch.float32:
            yield 0, weight
            return
        first = 0
        for part in torch.split(weight, max(1, BLOCK // weight.shape[1])):
            fits = part.numel() <= BLOCK  # or it is a single row
            wide = self._block[: part.numel()] if fits else torch.empty(part.numel())
            yield first, wide.view(part.shape).copy_(part)
            first += len(part)

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """x [n, in] times weight [out, in]: [n, out] in float32."""
        rows, found = x.float(), torch.empty(len(x), len(weight))
        for first, wide in self.blocks(weight):
            product = OneDnnLinear(rows)(wide).t() if self.swaps else F.linear(rows, wide)
            found[:, first : first + len(wide)] = product
        return found


@dataclass(frozen=True, slots=True)
class UpcastLinear:
    """A linear map over a 16-bit weight [out, in]; more rows than ``alone`` are multiplied in float32."""

    weight: Tensor
    bias: Tensor | None
    alone: int
    widening: Widening

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], in the type of the weight."""
        flat = x.reshape(-1, x.shape[-1])
        if len(flat) <= self.alone:
            return F.linear(x, self.weight, self.bias)
        found = self.widening.product(flat, self.weight)
        if self.bias is not None:
            found += self.bias
        return found.to(x.dtype).view(*x.shape[:-1], len(self.weight))


class Upcaster:
    """Upcasts the maps of one model; one trial serves all of them."""

    def __init__(self, widening: Widening, *, exact: bool = True) -> None:
        """``exact``: the rows of a draft take the kernel of a single row."""
        self._widening = widening
        self._alone = EXACT_ROWS if exact else None

    def map(self, linear: Linear) -> Linear:
        """The map upcast, or itself where it is small or not plain."""
        if not isinstance(linear, Dense) or linear.weight.numel() < SMALL:
            return linear
        if self._alone is None:
            self._alone = choose_alone(self._trial(linear.weight))
        return self._upcast(linear, self._alone)

    def _upcast(self, linear: Dense, alone: int) -> UpcastLinear:
        return UpcastLinear(linear.weight, linear.bias, alone, self._widening)

    def _trial(self, weight: Tensor) -> Timed:
        """Times products with copies of this map, too many for any cache, or of a part."""
        part = weight[: max(1, TRIAL // weight.shape[1])]
        copies = [Dense(part.clone()) for _ in range(max(1, TRIAL // part.numel()))]
        ways = copies, [self._upcast(each, 0) for each in copies]

        def timed(rows: int) -> tuple[float, float]:
            x = weight.new_ones(rows, weight.shape[1])
            plain, blocks = (_seconds(maps, x) for maps in ways)
            return plain, blocks

        return timed


def choose_alone(timed: Timed) -> int:
    """The most rows that take no longer plain; ``EVERY`` if that holds for all that are tried."""
    alone = 0
    for rows in TRIED:
        turns = [timed(rows) for _ in range(TRIALS)]
        if median(plain / blocks for plain, blocks in turns) > 1:
            return alone
        alone = rows
    return EVERY


def wide_type(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """The type in which several rows are multiplied: float32 where the processor lacks ``dtype``."""
    if device.type != "cpu" or can_pack(device, dtype):
        return dtype
    return torch.float32


def _seconds(maps: Sequence[Linear], x: Tensor) -> float:
    started = perf_counter()
    with torch.inference_mode():
        for each in maps:
            each(x)
    return perf_counter() - started
