"""The same function at a larger cost: honest cost measurements without large weights."""

from dataclasses import replace

import torch
from torch import Generator, Tensor

from engine.errors import ModelUnusable
from engine.models.decoder import Architecture, Dense, Layer, Linear
from engine.models.weights import DecoderWeights


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
