"""Linear maps over weights in the processor's own blocked layout (oneDNN), where that exists.

A plain ``F.linear`` re-reads a row-major weight with a kernel that suits wide batches; drafts make
narrow ones. Measured on two AVX-512 cores, microseconds for a 27648 x 320 float32 map: 1 row 2528
plain and 584 packed, 8 rows 3394 and 673, 64 rows 16686 and 2914. A call takes some 20 microseconds
before it multiplies, so small maps stay plain: 1 row through 128 x 352 takes 5 plain and 19 packed.
Through a large map one row takes 5 to 12 % longer than four, and two up to a third: they go as four.
The operator is the one that torch's own compiler emits for linear layers on CPUs; where it is
missing, all maps stay plain.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.decoder import Dense, Layer, Linear
from engine.models.weights import DecoderWeights

SMALL = 2**17  # weights of a map that is faster plain
LARGE = 2**22  # weights of a map whose kernels for one and two rows are slower than that for four
NARROW, FOUR = ((1,), (2,)), 4


@dataclass(frozen=True, slots=True)
class Packed:
    """A linear map whose weight only the processor's library can read."""

    weight: Tensor  # opaque
    bias: Tensor | None = None

    large: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        if self.large and x.shape[:-1] in NARROW:
            rows = x.shape[0]
            return self._apply(F.pad(x, (0, 0, 0, FOUR - rows)))[:rows]
        return self._apply(x)

    def _apply(self, x: Tensor) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - see the first lines
            x, self.weight, self.bias, "none", [], ""
        )
        return found


def packed(weights: DecoderWeights) -> DecoderWeights:
    """The same weights with every linear map packed, or untouched where that cannot be done.

    A head that is tied to the embedding becomes a copy of its own. Where the caller keeps no name
    for ``weights``, each layer's plain maps are freed as soon as it is packed.
    """
    if not can_pack(weights.embedding.device, weights.embedding.dtype):
        return weights
    layers = list(weights.layers)
    weights = replace(weights, layers=(), head=_packed_map(weights.head))
    for index in range(len(layers)):
        layers[index] = packed_layer(layers[index])
    return replace(weights, layers=tuple(layers))


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this machine's library takes packed weights of this type; asked by trying."""
    if device.type != "cpu":
        return False
    x, weight = torch.ones(2, 64, dtype=dtype), torch.ones(64, 64, dtype=dtype)
    try:
        found = Packed(_reordered(weight))(x)
    except (AttributeError, RuntimeError):  # another torch release, or a processor without the type
        return False
    return bool((found == 64).all())


def packed_layer(layer: Layer) -> Layer:
    """A layer with its linear maps packed; those that are packed already stay."""
    return replace(
        layer,
        qkv=_packed_map(layer.qkv),
        out=_packed_map(layer.out),
        gate_up=_packed_map(layer.gate_up),
        down=_packed_map(layer.down),
    )


def _packed_map(linear: Linear) -> Linear:
    if not isinstance(linear, Dense) or linear.weight.numel() < SMALL:
        return linear
    large = linear.weight.numel() >= LARGE
    return Packed(_reordered(linear.weight), linear.bias, large)


def _reordered(weight: Tensor) -> Tensor:
    with torch.inference_mode():
        found: Tensor = torch.ops.mkldnn._reorder_linear_weight(  # noqa: SLF001 - see above
            weight.contiguous(), None
        )
    return found
