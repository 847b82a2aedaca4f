"""The dense decoder: one block function that whole passes and early exits share.

Legend: ``...`` any leading dimensions, C hidden width, H heads, K key/value heads, D head width,
F feed-forward width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

Linear = Callable[[Tensor], Tensor]
"""[..., in] -> [..., out]; weights may be plain, packed or trainable."""

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q [..., H, D], k [..., K, D], v [..., K, D]) -> [..., H, D]; owns masks and the cache."""


EVEN_ROWS = 4  # the processor multiplies the rows left over from four of them in another order
EXACT_ROWS = 64  # up to this many rows, a map of rounded weights takes the kernel of a single one


@dataclass(frozen=True, slots=True)
class Architecture:
    """The numbers of a dense decoder."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int
    context: int
    norm_eps: float
    norm_after: bool = False  # a part's output is normed instead of its input (OLMo 2)
    no_rope: frozenset[int] = frozenset()  # layers that see no positions (SmolLM3)
    biases: frozenset[str] = frozenset()  # of qkv, out, gate_up, down: those that add one


@dataclass(frozen=True, slots=True)
class Dense:
    """A plain linear map over a weight [out, in]."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]; in float32, a row gets the same bits in every pass."""
        return even_linear(x, self.weight, self.bias)


def even_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` of x [..., in]; in float32 on the processor, of a multiple of four rows."""
    rows = x.numel() // x.shape[-1]
    missing = -rows % EVEN_ROWS if x.dtype == torch.float32 and not x.is_cuda else 0
    if not missing:
        return F.linear(x, weight, bias)
    even = F.pad(x.reshape(rows, -1), (0, 0, 0, missing))
    return F.linear(even, weight, bias)[:rows].view(*x.shape[:-1], len(weight))


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer; q, k, v are fused into one map, gate and up into another."""

    attention_norm: Tensor  # [C]
    qkv: Linear  # C -> (H + 2K) * D
    q_norm: Tensor | None  # [D] of every head (Qwen3), or [H * D] of all heads at once (OLMo 2)
    k_norm: Tensor | None  # [D] or [K * D]
    out: Linear  # H * D -> C
    mlp_norm: Tensor  # [C]
    gate_up: Linear  # C -> 2F
    down: Linear  # F -> C
    rotates: bool = True  # whether q and k are turned by position
    joined: Linear | None = None  # C -> C: all of the feed-forward part, where it runs as one

    def mapped(self, change: Callable[[Linear], Linear]) -> "Layer":
        """The layer with its linear maps changed."""
        return replace(
            self,
            qkv=change(self.qkv),
            out=change(self.out),
            gate_up=change(self.gate_up),
            down=change(self.down),
        )

    def norms_in(self, dtype: torch.dtype) -> "Layer":
        """The layer with its norms in ``dtype``."""
        return replace(
            self,
            attention_norm=self.attention_norm.to(dtype),
            mlp_norm=self.mlp_norm.to(dtype),
            q_norm=None if self.q_norm is None else self.q_norm.to(dtype),
            k_norm=None if self.k_norm is None else self.k_norm.to(dtype),
        )


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines and sines of some rows' positions, [..., 1, R] with R <= D rotated widths."""

    cos: Tensor
    sin: Tensor  # the first half negated: what the swapped halves are multiplied with

    @classmethod
    def table(cls, inv_freq: Tensor, length: int, scale: float = 1.0) -> "Rotary":
        """Angles of positions 0..length-1 in float32, [length, 1, R]."""
        angle = torch.outer(torch.arange(length, dtype=torch.float32), inv_freq.float())
        cos, sin = angle.cos() * scale, angle.sin() * scale
        return cls(torch.cat((cos, cos), -1).unsqueeze(1), torch.cat((-sin, sin), -1).unsqueeze(1))

    def at(self, positions: Tensor) -> "Rotary":
        """Rows of a table for ``positions`` [...]."""
        return Rotary(self.cos[positions], self.sin[positions])

    def rows(self, positions: Sequence[int]) -> "Rotary":
        """The same; consecutive ones are not copied, which takes longer than what is read."""
        first, end = positions[0], positions[0] + len(positions)
        if list(positions) == list(range(first, end)):
            return Rotary(self.cos[first:end], self.sin[first:end])
        return self.at(torch.tensor(positions, device=self.cos.device))

    def to(self, device: torch.device, dtype: torch.dtype) -> "Rotary":
        """The same angles on another device and in another dtype."""
        return Rotary(self.cos.to(device, dtype), self.sin.to(device, dtype))

    def turn(self, x: Tensor) -> Tensor:
        """Rotate the first R widths of ``x`` [..., heads, D] (half-split convention of Llama)."""
        width = self.cos.shape[-1]
        if width < x.shape[-1]:
            return torch.cat((self.turn(x[..., :width]), x[..., width:]), -1)
        return torch.addcmul(x * self.cos, x.roll(width // 2, -1), self.sin)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, accumulated in float32."""
    if x.dtype == torch.float32:
        return F.rms_norm(x, weight.shape, weight, eps)
    return (F.rms_norm(x.float(), weight.shape, None, eps)).to(x.dtype) * weight


def gated(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of [..., 2F], gate first -> [..., F]."""
    gate, up = gate_up.chunk(2, -1)
    if torch.is_inference_mode_enabled():  # without gradients: one buffer less
        return F.silu(gate).mul_(up)
    return F.silu(gate) * up


@dataclass(frozen=True, slots=True)
class ElementwiseOps:
    """What a layer does between its matrix products; a device may have faster versions."""

    norm: Callable[[Tensor, Tensor, float], Tensor] = rms_norm
    gated: Callable[[Tensor], Tensor] = gated


IN_TORCH = ElementwiseOps()


def block(
    layer: Layer,
    arch: Architecture,
    x: Tensor,
    rotary: Rotary | None,
    attend: Attend,
    between: ElementwiseOps = IN_TORCH,
) -> Tensor:
    """One decoder layer: x [..., C] -> [..., C]. Without ``rotary``, ``attend`` rotates."""

    def attention(normed: Tensor) -> Tensor:
        fused = layer.qkv(normed)
        heads = fused.view(*fused.shape[:-1], arch.heads + 2 * arch.kv_heads, arch.head_dim)
        asking, value = arch.heads, arch.heads + arch.kv_heads  # where queries and keys end
        turned = heads[..., :value, :]  # together: in narrow passes calls take longer than sums
        if layer.q_norm is not None and layer.k_norm is not None:
            q = _head_norm(turned[..., :asking, :], layer.q_norm, arch.norm_eps, between)
            k = _head_norm(turned[..., asking:, :], layer.k_norm, arch.norm_eps, between)
            turned = torch.cat((q, k), -2)
        if layer.rotates and rotary is not None:
            turned = rotary.turn(turned)
        q, k = turned[..., :asking, :], turned[..., asking:, :]
        return layer.out(attend(q, k, heads[..., value:, :]).flatten(-2))

    def feed_forward(normed: Tensor) -> Tensor:
        if layer.joined is not None:
            return layer.joined(normed)
        return layer.down(between.gated(layer.gate_up(normed)))

    def added(norm: Tensor, x: Tensor, part: Linear) -> Tensor:
        if arch.norm_after:
            return x + between.norm(part(x), norm, arch.norm_eps)
        return x + part(between.norm(x, norm, arch.norm_eps))

    x = added(layer.attention_norm, x, attention)
    return added(layer.mlp_norm, x, feed_forward)


def _head_norm(x: Tensor, weight: Tensor, eps: float, between: ElementwiseOps) -> Tensor:
    """Norm x [..., heads, D] head by head, or over all heads where the weight is that wide."""
    if weight.shape[0] == x.shape[-1]:
        return between.norm(x, weight, eps)
    return between.norm(x.flatten(-2), weight, eps).view_as(x)
