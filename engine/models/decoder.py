"""The dense decoder: one block function that inference, early exit and training share.

Legend: ``...`` any leading dimensions, C hidden width, H heads, K key/value heads, D head width,
F feed-forward width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Linear = Callable[[Tensor], Tensor]
"""[..., in] -> [..., out]; weights may be plain, packed or trainable."""

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q [..., H, D], k [..., K, D], v [..., K, D]) -> [..., H, D]; owns masks and the cache."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The numbers that fix a dense decoder's shape (Llama, Mistral, Qwen2/3, SmolLM, Phi-3)."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    context: int
    norm_eps: float


@dataclass(frozen=True, slots=True)
class Dense:
    """A plain linear map over a weight [out, in]."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer; q, k, v are fused into one map, gate and up into another."""

    attention_norm: Tensor  # [C]
    qkv: Linear  # C -> (H + 2K) * D
    q_norm: Tensor | None  # [D], Qwen3
    k_norm: Tensor | None  # [D], Qwen3
    out: Linear  # H * D -> C
    mlp_norm: Tensor  # [C]
    gate_up: Linear  # C -> 2F
    down: Linear  # F -> C


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines and sines of some rows' positions, [..., 1, R] with R <= D rotated widths."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def table(cls, inv_freq: Tensor, length: int, scale: float = 1.0) -> "Rotary":
        """Angles of positions 0..length-1 in float32, [length, 1, R]."""
        angle = torch.outer(torch.arange(length, dtype=torch.float32), inv_freq.float())
        angle = torch.cat((angle, angle), -1).unsqueeze(1)
        return cls(angle.cos() * scale, angle.sin() * scale)

    def at(self, positions: Tensor) -> "Rotary":
        """Rows of a table for ``positions`` [...]."""
        return Rotary(self.cos[positions], self.sin[positions])

    def to(self, device: torch.device, dtype: torch.dtype) -> "Rotary":
        """The same angles on another device and in another dtype."""
        return Rotary(self.cos.to(device, dtype), self.sin.to(device, dtype))

    def turn(self, x: Tensor) -> Tensor:
        """Rotate the first R widths of ``x`` [..., heads, D] (half-split convention of Llama)."""
        width = self.cos.shape[-1]
        rotated, rest = x[..., :width], x[..., width:]
        left, right = rotated.chunk(2, -1)
        turned = rotated * self.cos + torch.cat((-right, left), -1) * self.sin
        return turned if rest.shape[-1] == 0 else torch.cat((turned, rest), -1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, accumulated in float32."""
    if x.dtype == torch.float32:
        return F.rms_norm(x, weight.shape, weight, eps)
    return (F.rms_norm(x.float(), weight.shape, None, eps)).to(x.dtype) * weight


def block(layer: Layer, arch: Architecture, x: Tensor, rotary: Rotary, attend: Attend) -> Tensor:
    """One pre-norm decoder layer: x [..., C] -> [..., C]."""
    fused = layer.qkv(rms_norm(x, layer.attention_norm, arch.norm_eps))
    heads = fused.view(*fused.shape[:-1], arch.heads + 2 * arch.kv_heads, arch.head_dim)
    q, k, v = torch.split(heads, [arch.heads, arch.kv_heads, arch.kv_heads], -2)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = rms_norm(q, layer.q_norm, arch.norm_eps), rms_norm(k, layer.k_norm, arch.norm_eps)
    mixed = attend(rotary.turn(q), rotary.turn(k), v)
    x = x + layer.out(mixed.flatten(-2))
    gate, up = layer.gate_up(rms_norm(x, layer.mlp_norm, arch.norm_eps)).chunk(2, -1)
    return x + layer.down(F.silu(gate) * up)
