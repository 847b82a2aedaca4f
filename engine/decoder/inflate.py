"""The same function at a larger cost: honest cost measurements without large weights."""

from dataclasses import replace

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from engine.decoder.decoder import Architecture, Dense, Layer, Linear
from engine.decoder.weights import DecoderWeights
from engine.errors import ModelUnusable


def inflated(weights: DecoderWeights, times: int) -> DecoderWeights:
    """Every feed-forward part ``times`` as wide: new gate and up rows random, new down columns zero.

    Outputs stay what they were, up to the order of summation; bytes and operations grow. Raises
    ModelUnusable for feed-forward parts with a bias.
    """
    arch = replace(weights.arch, feed_forward=weights.arch.feed_forward * times)
    layers = tuple(
        _widened(layer, weights.arch, times, Generator().manual_seed(index))
        for index, layer in enumerate(weights.layers)
    )
    added = sum(_size(new) - _size(old) for new, old in zip(layers, weights.layers, strict=True))
    return replace(weights, arch=arch, layers=layers, parameters=weights.parameters + added)


def padded(weights: DecoderWeights, hidden: int) -> DecoderWeights:
    """The same function over states of ``hidden`` numbers, of which the new ones are always zero.

    A norm's mean then runs over more numbers, for which its weights and its epsilon make up.
    """
    extra, share = hidden - weights.arch.hidden, weights.arch.hidden / hidden

    def reads(linear: Linear) -> Dense:
        return Dense(pad(_dense(linear).weight, (0, extra)))

    def writes(linear: Linear) -> Dense:
        return Dense(pad(_dense(linear).weight, (0, 0, 0, extra)))

    def normed(weight: Tensor) -> Tensor:
        return pad(weight * share**0.5, (0, extra))

    layers = tuple(
        replace(
            layer,
            attention_norm=normed(layer.attention_norm),
            mlp_norm=normed(layer.mlp_norm),
            qkv=reads(layer.qkv),
            gate_up=reads(layer.gate_up),
            out=writes(layer.out),
            down=writes(layer.down),
        )
        for layer in weights.layers
    )
    arch = replace(weights.arch, hidden=hidden, norm_eps=weights.arch.norm_eps * share)
    embedding = pad(weights.embedding, (0, extra))
    return replace(
        weights, arch=arch, layers=layers, embedding=embedding, norm=normed(weights.norm),
        head=reads(weights.head),
    )  # fmt: skip


def _widened(layer: Layer, arch: Architecture, times: int, generator: Generator) -> Layer:
    gate, up = _dense(layer.gate_up).weight.chunk(2)
    extra = arch.feed_forward * (times - 1)

    def noise(like: Tensor) -> Tensor:
        rows = torch.randn(extra, arch.hidden, generator=generator) / arch.hidden**0.5
        return torch.cat((like, rows.to(like)))

    down = _dense(layer.down).weight
    zeros = torch.zeros(arch.hidden, extra, dtype=down.dtype, device=down.device)
    return replace(
        layer,
        gate_up=Dense(torch.cat((noise(gate), noise(up)))),
        down=Dense(torch.cat((down, zeros), 1)),
    )


def _dense(linear: Linear) -> Dense:
    if not isinstance(linear, Dense) or linear.bias is not None:
        raise ModelUnusable(
            "this model cannot be inflated: its feed-forward maps are not plain weights without "
            "bias; measure it as it is, or choose another model"
        )
    return linear


def _size(layer: Layer) -> int:
    return _dense(layer.gate_up).weight.numel() + _dense(layer.down).weight.numel()
