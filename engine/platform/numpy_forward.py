"""Run narrow passes of a small model row by row in NumPy, to avoid torch's call overhead.

What it does: a row of a draft model of a million parameters is a million products and some four
hundred calls into torch, each with cold caches after a pass of the large model. NumPy's calls are
shorter. Only drafts are computed here, so no token of an answer depends on how it rounds.

Gain, microseconds of the first to the sixth step of pocket-draft after a pass that has emptied the
caches, on two AVX-512 cores: torch 1356, 1023, 866, 768, 800, 633; this file 829, 517, 329, 219, 207,
202.

Delete when: torch's own steps of the bundled draft model take less than these.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from engine.decoder.decoder import Architecture, Dense, Layer, Linear
from engine.decoder.kv_cache import Array, KVCache, Layout
from engine.decoder.weights import DecoderWeights
from engine.platform.threads import one_openblas_thread
from engine.speculation.tree import bit_rows

SMALL = 4_000_000  # parameters; for larger models reading the weights takes longer than the calls
ROWS = 4  # of the widest pass that runs row by row; more rows are faster together


class NumpyForward:
    """A decoder's weights as arrays, over the same memory."""

    def __init__(self, weights: DecoderWeights) -> None:
        """Take weights that ``with_numpy_forward`` accepts."""
        arch = weights.arch
        self._eps, self._scale = arch.norm_eps, np.float32(arch.head_dim**-0.5)
        self._shape = (arch.heads + 2 * arch.kv_heads, arch.head_dim)
        self._heads, self._kv_heads = arch.heads, arch.kv_heads
        self._half = arch.head_dim // 2
        self._embedding = weights.embedding.numpy()
        self._cos, self._sin = weights.rotary.cos.numpy(), weights.rotary.sin.numpy()
        self._norm, self._head = weights.norm.numpy(), _Map(weights.head)
        self._layers = [_Arrays(layer) for layer in weights.layers]

    def rows(self, tokens: Sequence[int], layout: Layout, cache: KVCache, slot: int) -> list[Array]:
        """States [C] after the final norm of some rows of one slot, their keys and values cached."""
        held = cache.arrays(slot)
        pending = layout.end - layout.length
        whole = len(tokens) == 1 and layout.seen[0] == (1 << pending) - 1
        seen = bit_rows(layout.seen, pending)
        found = []
        for at, (token, position) in enumerate(zip(tokens, layout.positions, strict=True)):
            end = layout.start + at + 1
            mask = None if whole else self._mask(seen[at, : end - layout.length], end)
            found.append(self._row(token, position, end, mask, held))
        return found

    def logits(self, state: Array) -> Array:
        """[V] of a state [C] after the final norm."""
        return self._head(state)

    def _row(
        self,
        token: int,
        position: int,
        end: int,
        mask: Array | None,
        held: Sequence[tuple[Array, Array]],
    ) -> Array:
        x: Array = self._embedding[token]
        cos, sin, asking = self._cos[position], self._sin[position], self._heads
        turning = asking + self._kv_heads
        for layer, (keys, values) in zip(self._layers, held, strict=True):
            fused = layer.qkv(self._normed(x, layer.attention_norm)).reshape(self._shape)
            turned = fused[:turning]
            if layer.rotates:
                swapped = np.concatenate((turned[:, self._half :], turned[:, : self._half]), 1)
                turned = turned * cos + swapped * sin
            keys[:, end - 1], values[:, end - 1] = turned[asking:], fused[turning:]
            x = x + layer.out(self._mixed(turned[:asking], keys[:, :end], values[:, :end], mask))
            x = x + layer.down(_gated(layer.gate_up(self._normed(x, layer.mlp_norm))))
        return self._normed(x, self._norm)

    def _mask(self, seen: NDArray[np.bool_], end: int) -> Array:
        """Additive [end]: which of the last rows a row sees; it sees all before them."""
        mask = np.zeros(end, np.float32)
        mask[end - len(seen) :][~seen] = -np.inf
        return mask

    def _mixed(self, q: Array, keys: Array, values: Array, mask: Array | None) -> Array:
        """Attention of one row: q [H, D] over [K, end, D], to [H * D]."""
        q = q.reshape(self._kv_heads, -1, q.shape[-1]) * self._scale
        scores: Array = q @ keys.transpose(0, 2, 1)
        if mask is not None:
            scores += mask
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        mixed: Array = scores @ values
        return mixed.reshape(-1)

    def _normed(self, x: Array, weight: Array) -> Array:
        found: Array = x * (weight / np.sqrt(x.dot(x) / np.float32(len(x)) + np.float32(self._eps)))
        return found


class _Map:
    """A linear map of single rows."""

    def __init__(self, linear: Linear) -> None:
        assert isinstance(linear, Dense)  # see ``_fits``
        self._weight = linear.weight.numpy()
        self._bias = None if linear.bias is None else linear.bias.numpy()

    def __call__(self, x: Array) -> Array:
        """[in] -> [out]."""
        found: Array = self._weight @ x
        return found if self._bias is None else found + self._bias


class _Arrays:
    """One layer."""

    def __init__(self, layer: Layer) -> None:
        self.qkv, self.out = _Map(layer.qkv), _Map(layer.out)
        self.gate_up, self.down = _Map(layer.gate_up), _Map(layer.down)
        self.attention_norm, self.mlp_norm = layer.attention_norm.numpy(), layer.mlp_norm.numpy()
        self.rotates = layer.rotates


def _gated(gate_up: Array) -> Array:
    """SiLU of the first half times the second, [2F] to [F]; tanh cannot overflow."""
    gate, up = gate_up[: len(gate_up) // 2], gate_up[len(gate_up) // 2 :]
    half = np.float32(0.5)
    found: Array = gate * (half + half * np.tanh(half * gate)) * up
    return found


def with_numpy_forward(weights: DecoderWeights) -> DecoderWeights:
    """The same weights with narrow passes in NumPy, where these are faster and can be computed."""
    if not _fits(weights) or not one_openblas_thread():
        return weights
    return replace(weights, row_by_row=NumpyForward(weights))


def _fits(weights: DecoderWeights) -> bool:
    """Whether this file computes such a model: a Llama in float32 on the CPU, nothing packed."""
    arch, embedding = weights.arch, weights.embedding
    if weights.parameters > SMALL or embedding.device.type != "cpu":
        return False
    if embedding.dtype != torch.float32 or arch.norm_after:
        return False
    return isinstance(weights.head, Dense) and all(
        _plain(layer, arch, weights.rotary.cos.shape[-1]) for layer in weights.layers
    )


def _plain(layer: Layer, arch: Architecture, rotated: int) -> bool:
    maps = (layer.qkv, layer.out, layer.gate_up, layer.down)
    whole = rotated == arch.head_dim and layer.joined is None
    return whole and layer.q_norm is None and all(isinstance(m, Dense) for m in maps)
