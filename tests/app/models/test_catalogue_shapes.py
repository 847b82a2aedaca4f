"""Shapes of the catalogue against the sizes of its files and the model code of transformers."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from app.models.catalog import CatalogEntry, find_entry, load_catalog
from app.settings import Settings
from engine.hardware.layers import SMALL, drafting_weights, layer_weights
from engine.hardware.published import FP16, Q4, weights
from engine.hardware.shape import ModelShape

OFFERED = [one for one in load_catalog(Settings(home=Path("/nowhere"))) if one.repo is not None]


def test_folders_take_two_bytes_a_weight_and_their_headers():
    """A tied table may be stored twice. With the next test, every entry that is offered is covered."""
    folders = [entry for entry in OFFERED if not entry.gguf]
    assert len(folders) >= 20
    for entry in folders:
        shape = entry.shape
        table = 2 * shape.vocab * shape.hidden if shape is not None and shape.tied else 0
        over = entry.size - 2 * entry.parameters
        headers = over - table if table and over >= table else over
        assert 0 <= headers < 200_000, f"{entry.name}: {over:,} bytes more than its weights"


def file_type(entry: CatalogEntry) -> str:
    kinds = ("Q4_K_M", "Q8_0", "MXFP4")
    return next(kind for kind in kinds if kind in entry.files[0].upper())


def file_size(entry: CatalogEntry) -> float:
    """By the blocks of the file's type: 8.5 bits in Q8_0, 4.25 in MXFP4, which holds experts alone."""
    kind, held = file_type(entry), weights(entry.shape, FP16)
    if kind == "Q4_K_M":
        loaded = weights(entry.shape, Q4).total.bytes
        return loaded * (1 + drafting_weights(entry.shape) / held.total.elements)
    layers = range(entry.shape.layers)
    parts = Counter()
    for layer in layers:
        parts.update(layer_weights(entry.shape, layer))
    small = sum(parts[name] for name in SMALL)
    experts = parts["gate and up"] + parts["down"] if kind == "MXFP4" else 0
    rest = held.total.elements - small - experts
    return (32 * small + 4.25 * experts + 8.5 * rest) / 8


def test_a_file_is_as_large_as_its_shape_and_its_type_make_it():
    """Within 2 % where all layers are alike, as llama.cpp mixes Q4_K_M for these.

    Elsewhere publishers keep other maps in five, six or eight bits than that rule does, and maps whose
    width is no multiple of 256 cannot be in Q4_K at all: within 12 %.
    """
    files = [entry for entry in OFFERED if entry.gguf]
    assert len(files) >= 30
    for entry in files:
        alike = entry.shape.kinds is None or file_type(entry) != "Q4_K_M"
        share = entry.size / file_size(entry)
        assert share == pytest.approx(1, abs=0.02 if alike else 0.12), entry.name


def test_what_a_q4_file_lacks_in_bits_no_reading_of_its_shape_could_give_it():
    """Every map is in Q4_K at least, in 4.5 bits, and in eight bits and their scales at most."""
    for entry in OFFERED:
        if entry.gguf and file_type(entry) == "Q4_K_M":
            assert 4.5 < 8 * entry.size / entry.parameters < 8.5, entry.name


def common(shape: ModelShape) -> dict:
    return {
        "hidden_size": shape.hidden, "num_hidden_layers": shape.layers, "vocab_size": shape.vocab,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.feed_forward, "tie_word_embeddings": shape.tied,
    }  # fmt: skip


def kinds_of_layers(shape: ModelShape, others: str) -> list[str]:
    full = shape.kinds.full
    evenly = [
        (i + 1) * full // shape.layers > i * full // shape.layers for i in range(shape.layers)
    ]
    return ["full_attention" if sees_all else others for sees_all in evenly]


def gated_delta(shape: ModelShape):
    from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig

    kinds = shape.kinds
    own = {
        "head_dim": shape.head_dim, "layer_types": kinds_of_layers(shape, "linear_attention"),
        "linear_conv_kernel_dim": kinds.taps, "linear_num_value_heads": kinds.sums,
        "linear_num_key_heads": kinds.sum_keys, "linear_value_head_dim": kinds.sum_dim,
        "linear_key_head_dim": kinds.sum_dim,
    }  # fmt: skip
    if not shape.experts:
        return Qwen3_5TextConfig(**common(shape), **own)
    experts = {
        "num_experts": shape.experts, "moe_intermediate_size": shape.feed_forward,
        "shared_expert_intermediate_size": kinds.beside, "num_experts_per_tok": kinds.used,
    }  # fmt: skip
    wide = {key: value for key, value in common(shape).items() if key != "intermediate_size"}
    return Qwen3_5MoeTextConfig(**wide, **own, **experts)


def windowed(shape: ModelShape):
    from transformers import Gemma4TextConfig

    kinds = shape.kinds
    own = {
        "head_dim": shape.head_dim, "sliding_window": kinds.window,
        "layer_types": kinds_of_layers(shape, "sliding_attention"),
        "global_head_dim": kinds.full_head_dim, "attention_k_eq_v": kinds.one_map,
        "num_global_key_value_heads": kinds.full_kv_heads or None,
        "num_kv_shared_layers": kinds.shared, "use_double_wide_mlp": bool(kinds.shared_feed_forward),
        "hidden_size_per_layer_input": kinds.per_layer, "enable_moe_block": bool(shape.experts),
    }  # fmt: skip
    if shape.experts:
        own |= {
            "num_experts": shape.experts, "top_k_experts": kinds.used,
            "moe_intermediate_size": shape.feed_forward, "intermediate_size": kinds.beside,
        }  # fmt: skip
    return Gemma4TextConfig(**(common(shape) | own))


def convolved(shape: ModelShape):
    from transformers import Lfm2Config, Lfm2MoeConfig

    kinds = shape.kinds
    own = {"layer_types": kinds_of_layers(shape, "conv"), "conv_L_cache": kinds.taps}
    if not shape.experts:
        return Lfm2Config(**common(shape), **own, block_auto_adjust_ff_dim=False)
    own |= {
        "num_experts": shape.experts, "num_experts_per_tok": kinds.used,
        "moe_intermediate_size": shape.feed_forward, "num_dense_layers": kinds.dense,
        "intermediate_size": kinds.dense_feed_forward,
    }  # fmt: skip
    return Lfm2MoeConfig(**(common(shape) | own))


def biased(shape: ModelShape):
    from transformers import GptOssConfig

    own = {
        "head_dim": shape.head_dim, "num_local_experts": shape.experts,
        "sliding_window": shape.kinds.window, "num_experts_per_tok": shape.kinds.used,
    }  # fmt: skip
    return GptOssConfig(**common(shape), **own)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("qwen3.5-0.8b-q4", gated_delta), ("qwen3.5-9b-q4", gated_delta),
        ("qwen3.8-27b-q4", gated_delta), ("qwen3.6-35b-a3b-q4", gated_delta),
        ("gemma-4-e2b-q4", windowed), ("gemma-4-e4b-q4", windowed), ("gemma-4-12b-q4", windowed),
        ("gemma-4-26b-a4b-q4", windowed), ("lfm2.5-1.2b-q4", convolved),
        ("lfm2.5-2.6b-q4", convolved), ("lfm2.5-8b-a1b-q4", convolved), ("gpt-oss-20b", biased), ("gpt-oss-120b", biased),
    ],
)  # fmt: skip
def test_a_shape_weighs_what_transformers_builds_of_it(tmp_path, name, config):
    """Built without any memory."""
    pytest.importorskip("transformers")
    from transformers import AutoModelForCausalLM

    shape = find_entry(load_catalog(Settings(home=tmp_path)), name).shape
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config(shape))
    built = sum(weight.numel() for weight in model.parameters())
    assert weights(shape, FP16).total.elements == pytest.approx(built, rel=1e-4)  # small norms
    assert bool(drafting_weights(shape)) == (name == "qwen3.8-27b-q4")
