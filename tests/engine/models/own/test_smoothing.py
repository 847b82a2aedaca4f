"""Smoothing changes no function, and makes rows with large columns easier to round."""

from dataclasses import replace

import pytest
import torch

from engine.decoder.decoder import Dense
from engine.decoder.weights import load_weights, mapped
from engine.models.own.smoothing import Smoother
from engine.models.own.target import TorchTarget
from engine.platform.onednn_int8 import Rounded, can_multiply_rounded
from engine.speculation.tree import chain
from tests.engine.models.checkpoints import IDS, OWN, saved

CPU = torch.device("cpu")


def smoothed(folder):
    found = []

    def each(outer):
        found.append(Smoother.of(outer))
        return found[0].layer

    weights = load_weights(folder, torch.float32, CPU, each=each)
    return found[0].head(weights)


def logits(weights):
    return TorchTarget(weights).score([0], [chain(IDS[:40])])[0].logits


@pytest.mark.parametrize("family", OWN)
def test_the_function_stays_the_same(family, tmp_path):
    saved(OWN[family], tmp_path)
    plain = logits(load_weights(tmp_path, torch.float32, CPU))
    assert (logits(smoothed(tmp_path)) - plain).abs().max() < 2e-4 * plain.abs().max()


@pytest.mark.skipif(not can_multiply_rounded(CPU), reason="this processor has no products of bytes")
def test_a_model_with_large_columns_moves_less(tmp_path):
    saved(OWN["llama 3.2"], tmp_path)
    plain = load_weights(tmp_path, torch.float32, CPU)

    def with_large_columns(layer):
        scale = torch.ones(len(layer.attention_norm))
        scale[::16] = 60
        qkv, gate_up = (
            Dense(each.weight / scale, each.bias) for each in (layer.qkv, layer.gate_up)
        )
        return replace(
            layer,
            attention_norm=layer.attention_norm * scale,
            mlp_norm=layer.mlp_norm * scale,
            qkv=qkv,
            gate_up=gate_up,
        )

    hard = replace(plain, layers=tuple(map(with_large_columns, plain.layers)))
    smoother = Smoother.of(hard)
    eased = smoother.head(replace(hard, layers=tuple(map(smoother.layer, hard.layers))))
    wanted = logits(plain)
    moved, less = (
        (logits(mapped(each, lambda linear: Rounded.of(linear).packed())) - wanted).abs().mean()
        for each in (hard, eased)
    )
    assert less < 0.5 * moved
