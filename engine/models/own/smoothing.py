"""Move what makes rows hard to round into the weights, before both are rounded (SmoothQuant, section 4).

A few columns of a row are far larger than the others, so its 255 steps are coarse for these. Each column
is divided by sqrt(largest in the rows / largest in the weights), and the weights that read it are
multiplied by that; the norm or the map before takes the division, so no pass has more to do. The largest
numbers in the rows are found by running some tokens through every layer as it is read.
Measured over 600 tokens, divergence from float32 with and without: SmolLM2-135M 0.016 and 0.026 nats.
"""

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.decoder import Architecture, Dense, Layer, Linear, Rotary, block, rms_norm
from engine.decoder.weights import DecoderWeights

TOKENS = 256  # drawn from the whole vocabulary: which columns are large hardly depends on the text
LEAST = 1e-5  # of a column, so that none is divided by zero


@dataclass
class Smoother:
    """Reads the layers of one model in order; computes in float32, and gives float32 weights."""

    arch: Architecture
    rotary: Rotary
    rows: Tensor  # [TOKENS, C] before the next layer

    @classmethod
    def of(cls, outer: DecoderWeights) -> "Smoother":
        """For a model whose layers are not read yet."""
        ids = torch.randint(outer.arch.vocab, (TOKENS,), generator=torch.Generator().manual_seed(0))
        ids = ids[: outer.arch.context]
        rotary = outer.rotary.rows(range(len(ids)))
        return cls(outer.arch, rotary, outer.embedding[ids].float())

    @torch.inference_mode()
    def layer(self, layer: Layer) -> Layer:
        """The next layer, computing the same function."""
        wide = layer.mapped(_in_float32).norms_in(torch.float32)
        seen = {name: _Recorded(getattr(wide, name)) for name in ("qkv", "gate_up", "down")}
        recording = replace(wide, qkv=seen["qkv"], gate_up=seen["gate_up"], down=seen["down"])
        self.rows = block(recording, self.arch, self.rows, self.rotary, _causal)
        if not self.arch.norm_after:
            wide = _after_norm(wide, "attention_norm", "qkv", seen["qkv"])
            wide = _after_norm(wide, "mlp_norm", "gate_up", seen["gate_up"])
        return _after_gate(wide, seen["down"])

    @torch.inference_mode()
    def head(self, weights: DecoderWeights) -> DecoderWeights:
        """All layers read, the final norm and the head, which stays in its own type."""
        if not isinstance(weights.head, Dense):
            return weights
        head, norm = weights.head, weights.norm.float()
        found = _Recorded(head)
        found.see(rms_norm(self.rows, norm, self.arch.norm_eps))
        scale = found.scale()
        moved = (head.weight * scale.to(head.weight.dtype)).contiguous()
        return replace(weights, norm=norm / scale, head=Dense(moved, head.bias))


@dataclass
class _Recorded:
    """A map that notes the largest number of every column that it reads."""

    linear: Dense
    largest: Tensor | None = field(default=None)  # [in]

    def __call__(self, x: Tensor) -> Tensor:
        self.see(x)
        return self.linear(x)

    def see(self, x: Tensor) -> None:
        self.largest = x.reshape(-1, x.shape[-1]).abs().amax(0)

    def scale(self) -> Tensor:
        """What each column is divided by, [in]."""
        assert self.largest is not None
        weights = self.linear.weight.abs().amax(0).float()
        return (self.largest.clamp_min(LEAST) / weights.clamp_min(LEAST)).sqrt()


def _after_norm(layer: Layer, norm: str, name: str, seen: _Recorded) -> Layer:
    scale = seen.scale()
    seen.linear.weight.mul_(scale)
    return replace(layer, **{norm: getattr(layer, norm) / scale, name: seen.linear})


def _after_gate(layer: Layer, seen: _Recorded) -> Layer:
    """The columns of ``down`` are what ``up`` gives, the second half of ``gate_up``."""
    scale = seen.scale()
    gate_up = layer.gate_up
    assert isinstance(gate_up, Dense)
    gate_up.weight[len(scale) :].div_(scale.unsqueeze(1))
    if gate_up.bias is not None:
        gate_up.bias[len(scale) :].div_(scale)
    seen.linear.weight.mul_(scale)
    return replace(layer, gate_up=gate_up, down=seen.linear)


def _in_float32(linear: Linear) -> Dense:
    """A copy, which may be changed: what was read may be a file's pages."""
    assert isinstance(linear, Dense)
    weight, bias = linear.weight, linear.bias
    copied = None if bias is None else bias.to(torch.float32, copy=True)
    return Dense(weight.to(torch.float32, copy=True), copied)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return mixed[0].transpose(0, 1)
