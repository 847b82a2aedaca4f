"""A local Hugging Face folder to decoder weights: every tensor accounted for."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engine.decoder.architecture import architecture, decoder_config, rotary_table
from engine.decoder.checkpoint import Checkpoint
from engine.decoder.decoder import Architecture, Dense, Layer, Linear, Rotary
from engine.decoder.families import FAMILIES
from engine.decoder.kv_cache import Array, KVCache, Layout
from engine.errors import ModelUnusable

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

    @property
    def computes_in(self) -> torch.dtype:
        """The type of the rows between the layers; the cache has the embedding's."""
        return self.norm.dtype


def computing_in(weights: DecoderWeights, dtype: torch.dtype) -> DecoderWeights:
    """The same weights with the norms in ``dtype``, and so the rows between the layers."""
    return replace(
        weights,
        norm=weights.norm.to(dtype),
        layers=tuple(each.norms_in(dtype) for each in weights.layers),
    )


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


def device_named(name: str) -> torch.device:
    """The torch device of a spec's name; raises ModelUnusable where there is no CUDA device."""
    if name != "cpu" and not torch.cuda.is_available():
        raise ModelUnusable(f"device {name!r} is not there: torch finds no CUDA device")
    return torch.device(name)


def load_weights(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    context: int | None = None,
    each: Callable[[DecoderWeights], Callable[[Layer], Layer]] | None = None,
) -> DecoderWeights:
    """Read a folder; raises ModelUnusable when a tensor is missing, left over or misshapen.

    ``context`` is the longest conversation wanted, in tokens; None: what the model was made for.
    ``each`` gets all but the layers, and gives what changes a layer as soon as it is read, so that never
    more than one is held twice.
    """
    stored = StoredDecoder(folder, context)
    checkpoint = stored.checkpoint
    outer = stored.outer(dtype, device)
    change = None if each is None else each(outer)

    def layer(index: int) -> Layer:
        # no name here keeps what is read: it is freed once it is joined
        found = stored.layer(index, checkpoint.read(stored.layer_names(index), dtype, device))
        return found if change is None else change(found)

    return replace(outer, layers=tuple(map(layer, range(stored.arch.layers))))


class StoredDecoder:
    """A folder that the own decoder runs: config, family and tensors, of which none is read yet."""

    def __init__(self, folder: Path, context: int | None = None) -> None:
        """Raises ModelUnusable, also for tensors that have no place in the family."""
        config = decoder_config(folder)
        self.family = FAMILIES[config.model_type]
        self.arch = architecture(config, context)
        self.checkpoint = Checkpoint(folder)
        self._config = config
        self._tied = bool(getattr(config, "tie_word_embeddings", False))
        # old checkpoints store the rotary frequencies, which follow from the config
        stored = self.checkpoint.names
        self._names = frozenset(n for n in stored if not n.endswith("rotary_emb.inv_freq"))
        names = self.family.names
        known = {names.embedding, names.norm, names.head}
        known |= {n for i in range(self.arch.layers) for n in self.layer_names(i)}
        if left := self._names - known:
            raise ModelUnusable(f"{folder}: {_homeless(left)}")

    def layer_names(self, index: int) -> tuple[str, ...]:
        """The tensors of one layer, sorted."""
        at = self.family.names.layer(index)
        return tuple(sorted(name for name in self._names if name.startswith(at)))

    def outer(
        self, dtype: torch.dtype, device: torch.device, *, copied: bool = False
    ) -> DecoderWeights:
        """Everything but the layers; ``copied`` where the files may change later."""
        names, arch = self.family.names, self.arch
        outer = [names.embedding, names.norm, *([] if self._tied else [names.head])]
        tensors = self.checkpoint.read(outer, dtype, device)
        if copied:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        store = _Store(tensors)
        embedding = store.take(names.embedding, (arch.vocab, arch.hidden))
        head = embedding if self._tied else store.take(names.head, (arch.vocab, arch.hidden))
        return DecoderWeights(
            arch=arch,
            embedding=embedding,
            layers=(),
            norm=store.take(names.norm, (arch.hidden,)),
            head=Dense(head),
            rotary=rotary_table(self._config, arch).to(device, torch.float32),
            parameters=sum(math.prod(self.checkpoint.shape(name)) for name in self._names),
        )

    def layer(self, index: int, tensors: Mapping[str, Tensor]) -> Layer:
        """One layer out of exactly its tensors; raises ModelUnusable for any other set of them."""
        store, arch, names = _Store(tensors), self.arch, self.family.names
        at, hidden, unit = names.layer(index), arch.hidden, arch.feed_forward
        wide, narrow = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim

        def joined(name: str, rows: list[int], width: int) -> Dense:
            parts = names.parts(index, name)
            if len(parts) == 1:  # stored as one matrix
                rows = [sum(rows)]
            return _joined(store, dict(zip(parts, rows, strict=True)), width, name in arch.biases)

        def head_norm(name: str, width: int) -> Tensor | None:
            if not self.family.head_norms:
                return None
            width = width if self.family.head_norms == "all" else arch.head_dim
            return store.take(at + name, (width,))

        layer = Layer(
            attention_norm=store.take(at + names.attention_norm, (hidden,)),
            qkv=joined("qkv", [wide, narrow, narrow], hidden),
            q_norm=head_norm(names.q_norm, wide),
            k_norm=head_norm(names.k_norm, narrow),
            out=joined("out", [hidden], wide),
            mlp_norm=store.take(at + names.mlp_norm, (hidden,)),
            gate_up=joined("gate_up", [unit, unit], hidden),
            down=joined("down", [hidden], unit),
            rotates=index not in arch.no_rope,
        )
        store.check_empty()
        return layer


class _Store:
    """Tensors by name; each is taken once, with the shape that the config promises."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)

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


def _homeless(names: Iterable[str]) -> str:
    left = sorted(names)
    return f"{len(left)} tensors have no place in this family, {left[0]} first"


def _joined(store: _Store, parts: Mapping[str, int], width: int, bias: bool) -> Dense:  # noqa: FBT001
    """One map out of the stored ``parts``, name -> rows, each [rows, width]."""
    weights = [store.take(f"{name}.weight", (rows, width)) for name, rows in parts.items()]
    if not bias:
        return Dense(_rows(weights))
    return Dense(_rows(weights), _rows([store.take(f"{n}.bias", (r,)) for n, r in parts.items()]))


def _rows(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
