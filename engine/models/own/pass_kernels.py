"""The parts of a pass over a static cache: Triton kernels, and their definitions in torch."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.decoder import IN_TORCH, Architecture, ElementwiseOps, Rotary

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(q [n, H, D], keys [K, T, D], values, bits [n, W] int32, extent [2] int32) -> [n, H, D]."""

Heads = tuple[Tensor, Tensor, Tensor]
"""q [n, H, D], k and v [n, K, D], neither rotated."""

Placing = Callable[[Heads, tuple[Tensor, Tensor] | None, tuple[Tensor, Tensor], Tensor], Tensor]
"""(heads, cosines and sines [n, 1, R] or None, keys and values [K, T, D], start [1] int32) -> q.

Rotates q and k, and puts k and v into the cache from row ``start`` on.
"""


@dataclass(frozen=True, slots=True)
class PassKernels:
    """All of a layer but its matrix products."""

    attention: Attention
    placing: Placing
    between: ElementwiseOps


def masked_attention(
    q: Tensor, keys: Tensor, values: Tensor, bits: Tensor, extent: Tensor
) -> Tensor:
    """The reference of ``kernels.tree_attention``: torch's attention with the mask written out."""
    length, end = extent.tolist()
    place = torch.arange(end - length, device=q.device)
    seen = (bits[:, place // 32] >> (place % 32)) & 1
    mask = torch.zeros(len(q), end, dtype=q.dtype, device=q.device)
    mask[:, length:].masked_fill_(seen == 0, -torch.inf)
    mixed = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None, :, :end], values[None, :, :end], mask, enable_gqa=True
    )
    return mixed[0].transpose(0, 1).nan_to_num()  # a padded row may see nothing at all


def placed(
    heads: Heads,
    turns: tuple[Tensor, Tensor] | None,
    cache: tuple[Tensor, Tensor],
    start: Tensor,
) -> Tensor:
    """The reference of ``kernels.between.turned_into_cache``."""
    q, k, v = heads
    if turns is not None:
        q, k = (Rotary(*turns).turn(x) for x in (q, k))
    rows = start.long() + torch.arange(len(k), device=k.device)
    for held, new in zip(cache, (k, v), strict=True):
        held.index_copy_(1, rows, new.transpose(0, 1))
    return q


WRITTEN_OUT = PassKernels(masked_attention, placed, IN_TORCH)


def kernels_for(arch: Architecture) -> PassKernels | None:
    """Triton's, where it is installed and supports the head width."""
    width = arch.head_dim
    if find_spec("triton") is None or width < 16 or width & (width - 1):
        return None
    from engine.kernels.fused_ops import gated, rms_norm, turned_into_cache
    from engine.kernels.tree_attention import tree_attention

    return PassKernels(tree_attention, turned_into_cache, ElementwiseOps(rms_norm, gated))
