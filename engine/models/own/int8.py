"""Linear maps over 8-bit weights, for GPUs and processors that do not multiply bytes.

One scale per output; a quarter of float32's memory. Other processors round the rows, too: see
``engine.platform.native_linear``.

Only weights are rounded, to 255 steps between minus and plus the largest of their row; the product
is computed in the type of the rows. The function is close to the model's, not the same.
Measured on two AVX-512 cores, milliseconds for a 4096 x 2048 map in bfloat16: 1 row 0.36, in the
processor's own layout at full precision 0.45; 8 rows 1.1 and 0.5; 64 rows 3.5 and 2.5. So a plain
step is faster than at full precision, a pass of many rows is not. The bundled model, over 528 tokens
of its own greedy text, int8 in float32 against float32: same likeliest token at 99.4 %, divergence
3.0e-4 nats; int8 in bfloat16: 97.7 % and 6.1e-4.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.decoder import EXACT_ROWS, Dense, Linear, even_linear
from engine.platform.upcast_linear import Widening

STEPS = 127
BLOCK = (
    1024  # weight rows widened at a time: so that they and the rows fit into the processor's cache
)


@dataclass(frozen=True, slots=True)
class Int8:
    """A linear map whose weight is ``rows`` times ``scale``."""

    rows: Tensor  # [out, in] int8
    scale: Tensor  # [out], the type that the map computes in
    bias: Tensor | None = None
    widening: Widening | None = None  # where the processor lacks that type

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        flat = x.reshape(-1, x.shape[-1])
        by_bytes = len(flat) <= EXACT_ROWS and x.device.type == "cpu" and x.dtype == torch.bfloat16
        product = self._narrow(flat) if by_bytes else self._wide(flat)
        if self.bias is not None:
            product = product + self.bias
        return product.view(*x.shape[:-1], len(self.rows))

    def _narrow(self, x: Tensor) -> Tensor:
        found: Tensor = torch._weight_int8pack_mm(x, self.rows, self.scale)  # noqa: SLF001
        return found

    def _wide(self, x: Tensor) -> Tensor:
        if self.widening is not None:
            return (self.widening.product(x, self.rows) * self.scale).to(x.dtype)
        if x.is_cuda:  # few launches; its cache is no concern
            return F.linear(x, self.rows.to(x.dtype)) * self.scale
        parts = [even_linear(x, block.to(x.dtype)) for block in torch.split(self.rows, BLOCK)]
        return torch.cat(parts, -1) * self.scale


class Int8Quantiser:
    """Rounds the linear maps of one model to 8 bits.

    A head that is tied to the embedding becomes a rounded copy of its own.
    """

    def __init__(self, widening: Widening | None = None) -> None:
        """To multiply in float32 where the processor lacks the model's type."""
        self._widening = widening

    def map(self, linear: Linear) -> Linear:
        """The map rounded; any other than a plain one stays what it is."""
        if not isinstance(linear, Dense):
            return linear
        weight = linear.weight.float()
        largest = weight.abs().amax(1)
        # the scale is rounded first: what its type loses, the steps then make up for
        scale = torch.where(largest > 0, largest / STEPS, 1.0).to(linear.weight.dtype)
        steps = (weight / scale.float().unsqueeze(1)).round_().clamp_(-STEPS, STEPS)
        return Int8(steps.to(torch.int8), scale, linear.bias, self._widening)
