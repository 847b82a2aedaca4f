"""Linear maps whose rows come from a source block by block, and a feed-forward part made of two."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.interfaces.target import LayerSource
from engine.platform.onednn_linear import OneDnnLinear
from engine.platform.upcast_linear import Widening

SWAP_ROWS = 8  # fewer are slower swapped, or in parts
ALONE = 2  # rows of halves that torch multiplies faster than a block of the weight is widened
LONG = 256  # inputs for every row of a block: it is multiplied in parts
PART = 4096  # inputs of a part: what it multiplies stays in a core's cache


@dataclass
class Scratch:
    """Memory for the widest product: fresh pages in every layer would cost a tenth of a pass."""

    flat: Tensor | None = None

    def matrix(self, rows: int, x: Tensor) -> Tensor:
        """[rows, n] for x [n, in] and of its type, valid until the next call."""
        size = rows * len(x)
        if self.flat is None or len(self.flat) < size:
            self.flat = None  # gone before the larger one comes
            self.flat = torch.empty(size, dtype=x.dtype, device=x.device)
        return self.flat[:size].view(rows, len(x))


@dataclass(frozen=True, slots=True)
class StreamedMap:
    """A linear map whose rows come block by block.

    The product is taken as weight times rows, transposed, so that what is written is contiguous.
    In float32 oneDNN takes it with the roles swapped: the block as the batch, the rows as the
    weight. Measured on two AVX-512 cores, GB/s of a 26000 x 320 block by ``F.linear``, by this
    product, and by the swapped one: 2 rows 4, 30, 13; 16 rows 6, 7, 12; 64 rows 3.3, 4.0, 5.5; 256
    rows 1.2, 1.3, 1.5. The processor's own layout would give 6.3 at 64 rows, but rearranging a
    block first leaves 3.6: it is for weights that stay.

    A block of few long rows reads all of x for each of them: 56 x 138240 goes in parts of the
    inputs, 3.3, 2.4, 1.9 GB/s with 65, 97, 129 rows, where the swapped product gives 3.1, 1.9, 1.7.
    """

    source: LayerSource
    layer: int
    name: str
    rows: int
    widening: Widening | None  # of products in float32; None: in the type of the rows
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]; raises LayerUnreadable."""
        flat = self.rows_of(x)
        found = torch.empty(self.rows, len(flat), dtype=x.dtype, device=x.device)
        for first, product in self.products(flat):
            found[first : first + len(product)] = product
        return found.t().reshape(*x.shape[:-1], self.rows)

    def rows_of(self, x: Tensor) -> Tensor:
        """[..., in] as [n, in], in the type that is multiplied."""
        flat = x.reshape(-1, x.shape[-1])
        return flat if self.widening is None or len(flat) <= ALONE else flat.float()

    def products(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """For every block its first row, and its product [r, n] with ``rows_of`` [n, in]."""
        wide = self.widening is not None and self.widening.swaps and len(x) >= SWAP_ROWS
        for first, weight in self._blocks(x.dtype):
            if not wide:
                product = torch.mm(weight, x.t())
            elif weight.shape[1] >= max(PART, LONG * len(weight)):
                product = _in_parts(weight, x)
            else:
                product = OneDnnLinear(x)(weight)
            if self.bias is not None:
                product += self.bias[first : first + len(product)].unsqueeze(1)
            yield first, product

    def _blocks(self, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
        for block in self.source.blocks(self.layer, self.name):
            if self.widening is None or dtype != torch.float32:
                yield block.first, block.weight.to(dtype)
                continue
            for first, weight in self.widening.blocks(block.weight):
                yield block.first + first, weight


@dataclass(frozen=True, slots=True)
class StreamedFeedForward:
    """down(silu(gate(x)) * up(x)) with one number for every hidden unit and row at a time.

    Run separately, the maps hold five: gate, up, the activation, their product and a copy of it. Memory
    for rows bounds the tree, and in a pass over streamed weights rows cost nothing.
    """

    gate_up: StreamedMap
    down: StreamedMap
    scratch: Scratch  # shared by all layers: a pass is in one of them

    def __call__(self, x: Tensor) -> Tensor:
        """[..., C] -> [..., C]; raises LayerUnreadable."""
        flat = self.gate_up.rows_of(x)
        width = self.gate_up.rows // 2
        inner = self.scratch.matrix(width, flat)
        for first, product in self.gate_up.products(flat):
            gates = max(0, min(width - first, len(product)))  # rows of gate; the others are of up
            if gates:
                inner[first : first + gates] = F.silu(product[:gates], inplace=True)
            if gates < len(product):
                at = first + gates - width
                inner[at : at + len(product) - gates].mul_(product[gates:])
        return self.down(inner.t()).to(x.dtype).view_as(x)


def _in_parts(weight: Tensor, x: Tensor) -> Tensor:
    """weight [r, in] times x [n, in], transposed: [r, n]; partial sums over runs of inputs."""
    turned = x.t()
    parts = weight.shape[1] // PART
    end = parts * PART
    left = weight[:, :end].view(len(weight), parts, PART).transpose(0, 1)
    product = torch.bmm(left, turned[:end].view(parts, PART, len(x))).sum(0)
    return product.addmm_(weight[:, end:], turned[end:])
