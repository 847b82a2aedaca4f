"""Sizes of a model's weights, layer by layer, from the headers of its files alone."""

import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from engine.decoder.config import weight_files
from engine.errors import ModelUnusable
from engine.hardware.shape import ModelShape

Tensor = tuple[str, int, int]  # name, elements, bytes

_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|blk|h)\.(\d+)\.")
_EMBEDDING = ("embed_tokens.weight", "token_embd.weight", "wte.weight")
_TABLES = ("embed_tokens_per_layer.weight", "per_layer_token_embd.weight")
_HEAD = ("lm_head.weight", "output.weight")
_UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error
)  # fmt: skip
_QUANTISED = frozenset({  # ends of names, by which GPTQ, AWQ, FP8 and bitsandbytes are known
    "qweight", "qzeros", "g_idx", "weight_packed", "weight_scale", "weight_scale_inv", "SCB", "absmax",
    "quant_map",
})  # fmt: skip
_LONGEST_HEADER = 100_000_000  # bytes; the format's own limit


@dataclass(frozen=True, slots=True)
class Size:
    """Of some tensors together."""

    elements: int = 0
    bytes: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(self.elements + other.elements, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a model's files hold."""

    layers: tuple[Size, ...]
    embedding: Size
    head: Size  # nothing, where it is the embedding
    rest: Size = Size()  # final norm and the like
    tables: Size = Size()  # further embeddings, one for each layer

    @property
    def total(self) -> Size:
        """All of it."""
        return sum(self.layers, self.embedding + self.tables + self.head + self.rest)


def stored(tensors: Iterable[Tensor], layers: int, *, tied: bool = False) -> Stored:
    """Tensors sorted by where they belong; ``layers`` is how many the config promises."""
    by_layer = [Size()] * layers
    embedding = tables = head = rest = Size()
    for name, elements, size in tensors:
        found = _LAYER.search(name)
        if found and int(found[1]) < layers:
            by_layer[int(found[1])] += Size(elements, size)
        elif name.endswith(_TABLES):
            tables += Size(elements, size)
        elif name.endswith(_EMBEDDING):
            embedding += Size(elements, size)
        elif not name.endswith(_HEAD):
            rest += Size(elements, size)
        elif not tied:
            head += Size(elements, size)
    return Stored(tuple(by_layer), embedding, head, rest, tables)


def safetensors(folder: Path) -> Iterator[Tensor]:
    """Every tensor of a Hugging Face folder; raises ModelUnusable."""
    for file in weight_files(folder):
        yield from _header(file)


def check_fits(folder: Path, shape: ModelShape) -> None:
    """That the weights are what the config says, by names and sizes alone; raises ModelUnusable.

    ``shape`` is of a family whose layers are all alike.
    """
    wanted, layers, maps = _numbers(shape), set[int](), set[str]()
    for name, elements, _ in safetensors(folder):
        if found := _LAYER.search(name):
            layers.add(int(found[1]))
        *_, of, part = ("", *name.split("."))
        maps.add(of)
        if part in _QUANTISED:
            raise ModelUnusable(
                f"{folder}: the weights are stored quantised ({name}), which is not supported; get the "
                "full model and ask for int8 weights, or a GGUF file"
            )
        if part == "weight" and elements != wanted.get(of, elements):
            raise ModelUnusable(
                f"{folder}: {name} has {elements} numbers, by config.json there are {wanted[of]}; "
                "get the model again"
            )
    if "lm_head" not in maps and not shape.tied:
        raise ModelUnusable(f"{folder}: the weights lack lm_head.weight; get the model again")
    if len(layers) != shape.layers:
        raise ModelUnusable(
            f"{folder} holds {len(layers)} layers, by config.json there are {shape.layers}; get the "
            "model again"
        )


def _numbers(shape: ModelShape) -> dict[str, int]:
    """Numbers in each map, some of which families store as one."""
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    rows = {
        "qkv_proj": wide + 2 * narrow, "q_proj": wide, "k_proj": narrow, "v_proj": narrow,
        "o_proj": wide, "gate_up_proj": 2 * shape.feed_forward, "gate_proj": shape.feed_forward,
        "up_proj": shape.feed_forward, "down_proj": shape.feed_forward,
        "embed_tokens": shape.vocab, "lm_head": shape.vocab,
    }  # fmt: skip
    return {name: count * shape.hidden for name, count in rows.items()}


def _header(file: Path) -> Iterator[Tensor]:
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            # a longer one is cut off, and then it is no JSON
            entries = json.loads(opened.read(min(length, _LONGEST_HEADER)))
        last = 0
        for name, entry in entries.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                last = max(last, end)
                yield name, prod(entry["shape"]), end - start
        needed, size = 8 + length + last, file.stat().st_size
    except _UNREADABLE as error:
        raise ModelUnusable(f"{file}: not a readable safetensors file: {error}") from error
    if needed > size:
        raise ModelUnusable(
            f"{file} is cut off: its tensors need {needed} bytes, it has {size}; get it again"
        )
