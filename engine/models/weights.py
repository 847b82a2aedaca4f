"""A local Hugging Face folder to decoder weights: safetensors only, every tensor accounted for."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import ModelUnusable
from engine.models.decoder import Architecture, Dense, Layer, Linear, Rotary

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3")
ROPE_KINDS = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Everything that a forward pass reads."""

    arch: Architecture
    embedding: Tensor  # [V, C]
    layers: tuple[Layer, ...]
    norm: Tensor  # [C]
    head: Linear  # C -> V
    rotary: Rotary  # table of all positions
    parameters: int


def load_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> DecoderWeights:
    """Read a folder; raises ModelUnusable when anything is missing, left over or misshapen."""
    config = _read_config(folder)
    arch = _architecture(config)
    store = _Store(dict(_read_tensors(folder, dtype, device)))
    layers = tuple(_layer(store, index, arch) for index in range(arch.layers))
    embedding = store.take("model.embed_tokens.weight", (arch.vocab, arch.hidden))
    head = embedding
    if not getattr(config, "tie_word_embeddings", False):
        head = store.take("lm_head.weight", (arch.vocab, arch.hidden))
    norm = store.take("model.norm.weight", (arch.hidden,))
    store.check_empty(folder)
    table = _rotary(config, arch).to(device, torch.float32)
    return DecoderWeights(arch, embedding, layers, norm, Dense(head), table, store.parameters)


def _read_config(folder: Path) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnusable(f"{folder}: config.json cannot be read: {error}") from error
    if config.model_type not in FAMILIES:
        raise ModelUnusable(
            f"{folder}: family {config.model_type!r} is not supported; "
            f"supported are {', '.join(FAMILIES)}"
        )
    return config


def _architecture(config: Any) -> Architecture:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    context = config.max_position_embeddings
    window = getattr(config, "sliding_window", None)
    if window and getattr(config, "use_sliding_window", True):
        context = min(context, window)  # inside its window such a model is a full-attention model
    return Architecture(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        feed_forward=config.intermediate_size,
        vocab=config.vocab_size,
        context=context,
        norm_eps=config.rms_norm_eps,
    )


def _rotary(config: Any, arch: Architecture) -> Rotary:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = config.rope_parameters.get("rope_type", "default")
    if kind not in ROPE_KINDS:
        raise ModelUnusable(
            f"rotary scaling {kind!r} is not supported; supported are {', '.join(ROPE_KINDS)}"
        )
    if kind == "default":
        share = config.rope_parameters.get("partial_rotary_factor", 1.0)
        width = int(arch.head_dim * share)
        exponent = torch.arange(0, width, 2).float() / width
        return Rotary.table(config.rope_parameters["rope_theta"] ** -exponent, arch.context)
    inv_freq, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return Rotary.table(inv_freq, arch.context, float(scale))


def _read_tensors(
    folder: Path, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, Tensor]]:
    for file in _shards(folder):
        try:
            with safe_open(str(file), framework="pt", device="cpu") as shard:
                for name in shard.keys():  # noqa: SIM118 - safe_open is no mapping
                    yield name, shard.get_tensor(name).to(device, dtype)
        except (SafetensorError, OSError) as error:
            raise ModelUnusable(f"{file}: not a readable safetensors file: {error}") from error


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return [folder / "model.safetensors"]
    names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    for name in names:
        if Path(name).name != name:
            raise ModelUnusable(f"{index}: {name!r} points outside the model's folder")
    return [folder / name for name in names]


class _Store:
    """Tensors by name; each is taken once, with the shape that the config promises."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = {n: t for n, t in tensors.items() if not n.endswith("rotary_emb.inv_freq")}
        self.parameters = sum(t.numel() for t in self._tensors.values())

    def has(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self._tensors.pop(name, None)
        if found is None:
            raise ModelUnusable(f"the weights lack the tensor {name}; download the model again")
        if tuple(found.shape) != shape:
            raise ModelUnusable(
                f"tensor {name} has shape {tuple(found.shape)}, the config says {shape}"
            )
        return found.contiguous()

    def take_if(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        return self.take(name, shape) if self.has(name) else None

    def check_empty(self, folder: Path) -> None:
        left = sorted(n for n in self._tensors if n != "lm_head.weight")
        if left:
            raise ModelUnusable(
                f"{folder}: {len(left)} tensors have no place in this family, {left[0]} first"
            )


def _layer(store: _Store, index: int, arch: Architecture) -> Layer:
    at = f"model.layers.{index}."
    wide, narrow = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    attention = (("q", wide), ("k", narrow), ("v", narrow))
    mlp = (("gate", arch.feed_forward), ("up", arch.feed_forward))
    return Layer(
        attention_norm=store.take(at + "input_layernorm.weight", (arch.hidden,)),
        qkv=_fused(store, at + "self_attn.", "qkv", attention, arch.hidden),
        q_norm=store.take_if(at + "self_attn.q_norm.weight", (arch.head_dim,)),
        k_norm=store.take_if(at + "self_attn.k_norm.weight", (arch.head_dim,)),
        out=_fused(store, at + "self_attn.", "o", (("o", arch.hidden),), wide),
        mlp_norm=store.take(at + "post_attention_layernorm.weight", (arch.hidden,)),
        gate_up=_fused(store, at + "mlp.", "gate_up", mlp, arch.hidden),
        down=_fused(store, at + "mlp.", "down", (("down", arch.hidden),), arch.feed_forward),
    )


def _fused(
    store: _Store, at: str, fused: str, parts: tuple[tuple[str, int], ...], width: int
) -> Dense:
    """One map out of several projections; a checkpoint may hold it fused already (Phi-3)."""
    whole, rows = f"{at}{fused}_proj.", sum(size for _, size in parts)
    if store.has(whole + "weight"):
        return Dense(
            store.take(whole + "weight", (rows, width)), store.take_if(whole + "bias", (rows,))
        )
    weight = [store.take(f"{at}{name}_proj.weight", (size, width)) for name, size in parts]
    bias = [store.take_if(f"{at}{name}_proj.bias", (size,)) for name, size in parts]
    given = [b for b in bias if b is not None]
    return Dense(torch.cat(weight), torch.cat(given) if len(given) == len(parts) else None)
