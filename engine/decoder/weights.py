"""A local Hugging Face folder to decoder weights: every tensor accounted for."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engine.decoder.checkpoint import Checkpoint
from engine.decoder.decoder import Architecture, Dense, Layer, Linear, Rotary
from engine.decoder.families import architecture, decoder_config, rotary_table
from engine.decoder.kv_cache import Array, KVCache, Layout
from engine.errors import ModelUnusable

EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class RowByRow(Protocol):
    """A second way through the same weights: see ``engine.platform.numpy_forward``."""

    def rows(self, tokens: Sequence[int], layout: Layout, cache: KVCache, slot: int) -> list[Array]:
        """States [C] after the final norm of some rows of one slot, their keys and values cached."""
        ...

    def logits(self, state: Array) -> Array:
        """[V] of a state [C] after the final norm."""
        ...


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
    row_by_row: "RowByRow | None" = None  # for passes over a few rows; of small models


def mapped(weights: DecoderWeights, change: Callable[[Linear], Linear]) -> DecoderWeights:
    """The same weights with every linear map changed, the head's among them.

    Where the caller keeps no name for ``weights``, each layer's old maps are freed at once.
    """
    layers = list(weights.layers)
    weights = replace(weights, layers=(), head=change(weights.head))
    for index in range(len(layers)):
        layers[index] = layers[index].mapped(change)
    return replace(weights, layers=tuple(layers))


def dtype_named(name: str) -> torch.dtype:
    """The torch dtype of a spec's name; raises ModelUnusable."""
    if name not in DTYPES:
        raise ModelUnusable(f"dtype {name!r} is not supported; choose {' or '.join(DTYPES)}")
    return DTYPES[name]


def load_weights(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    context: int | None = None,
    each: Callable[[Layer], Layer] | None = None,
) -> DecoderWeights:
    """Read a folder; raises ModelUnusable when anything is missing, left over or misshapen.

    ``context`` is the longest conversation wanted, in tokens; None: what the model was made for.
    ``each`` changes a layer as soon as it is read, so that never more than one is held twice.
    """
    config = decoder_config(folder)
    arch = architecture(config, context)
    checkpoint = Checkpoint(folder)
    names = used_names(checkpoint.names)
    tied = bool(getattr(config, "tie_word_embeddings", False))
    check_places(folder, names, arch)
    outer = _Store(checkpoint.read([EMBEDDING, NORM, *([] if tied else [HEAD])], dtype, device))
    embedding = outer.take(EMBEDDING, (arch.vocab, arch.hidden))

    def layer(index: int) -> Layer:
        own = layer_tensor_names(names, index)
        # no name here keeps what is read: it is freed once it is joined
        found = layer_from(checkpoint.read(own, dtype, device), index, arch)
        return found if each is None else each(found)

    return DecoderWeights(
        arch=arch,
        embedding=embedding,
        layers=tuple(map(layer, range(arch.layers))),
        norm=outer.take(NORM, (arch.hidden,)),
        head=Dense(embedding if tied else outer.take(HEAD, (arch.vocab, arch.hidden))),
        rotary=rotary_table(config, arch).to(device, torch.float32),
        parameters=sum(math.prod(checkpoint.shape(name)) for name in names),
    )


def used_names(names: Iterable[str]) -> frozenset[str]:
    """All but the rotary frequencies that old checkpoints store; they follow from the config."""
    return frozenset(n for n in names if not n.endswith("rotary_emb.inv_freq"))


def layer_tensor_names(names: Iterable[str], index: int) -> tuple[str, ...]:
    """Those of a checkpoint's tensors that make up one layer, sorted."""
    at = f"model.layers.{index}."
    return tuple(sorted(name for name in names if name.startswith(at)))


def layer_from(tensors: Mapping[str, Tensor], index: int, arch: Architecture) -> Layer:
    """One layer out of exactly its tensors; raises ModelUnusable for any other set of them."""
    store, at = _Store(tensors), f"model.layers.{index}."
    wide, narrow = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    first, second = "input", "post_attention"
    q_width = k_width = arch.head_dim
    if arch.norm_after:
        first, second, q_width, k_width = "post_attention", "post_feedforward", wide, narrow

    def fused(place: str, parts: dict[str, int], width: int) -> Dense:
        return _fused(store, at + place, parts, width, bias=place.split(".")[1] in arch.biases)

    def head_norm(name: str, width: int) -> Tensor | None:
        if not arch.head_norms:
            return None
        return store.take(f"{at}self_attn.{name}_norm.weight", (width,))

    layer = Layer(
        attention_norm=store.take(f"{at}{first}_layernorm.weight", (arch.hidden,)),
        qkv=fused("self_attn.qkv", {"q": wide, "k": narrow, "v": narrow}, arch.hidden),
        q_norm=head_norm("q", q_width),
        k_norm=head_norm("k", k_width),
        out=fused("self_attn.o", {"o": arch.hidden}, wide),
        mlp_norm=store.take(f"{at}{second}_layernorm.weight", (arch.hidden,)),
        gate_up=fused(
            "mlp.gate_up", {"gate": arch.feed_forward, "up": arch.feed_forward}, arch.hidden
        ),
        down=fused("mlp.down", {"down": arch.hidden}, arch.feed_forward),
        rotates=index not in arch.no_rope,
    )
    store.check_empty()
    return layer


class _Store:
    """Tensors by name; each is taken once, with the shape that the config promises."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)

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

    def check_empty(self) -> None:
        if self._tensors:
            raise ModelUnusable(_homeless(self._tensors))


def check_places(folder: Path, names: Iterable[str], arch: Architecture) -> None:
    """Every tensor must belong to a layer of the config or stand outside all of them."""
    known = {EMBEDDING, NORM, HEAD}
    layers = tuple(f"model.layers.{i}." for i in range(arch.layers))
    left = [name for name in names if name not in known and not name.startswith(layers)]
    if left:
        raise ModelUnusable(f"{folder}: {_homeless(left)}")


def _homeless(names: Iterable[str]) -> str:
    left = sorted(names)
    return f"{len(left)} tensors have no place in this family, {left[0]} first"


def _fused(store: _Store, at: str, parts: dict[str, int], width: int, *, bias: bool) -> Dense:
    """One map out of several projections; a checkpoint may hold it fused already (Phi-3).

    ``at`` is its name fused, up to ``_proj``; ``parts`` are the rows of each projection.
    """
    if store.has(f"{at}_proj.weight"):
        parts = {at.rsplit(".", 1)[1]: sum(parts.values())}
    place = at.rsplit(".", 1)[0]
    weights = [store.take(f"{place}.{n}_proj.weight", (rows, width)) for n, rows in parts.items()]
    if not bias:
        return Dense(_joined(weights))
    given = [store.take(f"{place}.{n}_proj.bias", (rows,)) for n, rows in parts.items()]
    return Dense(_joined(weights), _joined(given))


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
