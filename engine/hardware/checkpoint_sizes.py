"""Sizes of a model's weights, layer by layer, from the headers of its files alone."""

import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from engine.errors import ModelUnusable

Tensor = tuple[str, int, int]  # name, elements, bytes

_LAYER = re.compile(r"(?:^|\.)(?:layers|blocks|blk|h)\.(\d+)\.")
_EMBEDDING = ("embed_tokens.weight", "token_embd.weight", "wte.weight")
_TABLES = ("embed_tokens_per_layer.weight", "per_layer_token_embd.weight")
_HEAD = ("lm_head.weight", "output.weight")
_UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error
)  # fmt: skip
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
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelUnusable(f"{folder} holds no *.safetensors; get the model again")
    for file in files:
        yield from _header(file)


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
