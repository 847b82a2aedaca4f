"""GGUF header: read in Python and checked against the file's length before llama.cpp sees it.

llama.cpp trusts some numbers of a file that it should not (a wrong ``block_count`` ends the
process), so every count, size and offset is bounded here first. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from engine.errors import ModelUnusable

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 65_536  # metadata keys, and tensors: the largest models have a few thousand
MOST_ELEMENTS = 1 << 23  # of all metadata arrays; the largest vocabularies need under a million
MOST_HEADER_BYTES = 1 << 27
MOST_KEY_BYTES = 65_535
MOST_NAME_BYTES = 63  # what ggml has room for
MOST_DIMENSIONS = 4
MOST_ALIGNMENT = 1 << 20
MOST_PARTS = 1000

_PEEKED = 4096  # bytes
_FAMILY = re.compile(rb"\x14\0{7}general\.architecture\x08\0{3}.\0{7}([\w.-]+)", re.DOTALL)
_LENGTH = 8  # bytes of a text's length
_PIECE = 1 << 20  # bytes that are read at once
_ONE_OF_SEVERAL = re.compile(
    r"([-.]split-[a-z]{1,2}|[-._]part-?(\d+(of\d+)?|[a-z]{1,2})|\.\d{3})$", re.IGNORECASE
)
_UNFINISHED = (
    ".part",
    ".partial",
    ".crdownload",
    ".download",
    ".incomplete",
    ".tmp",
    ".opdownload",
)
_BIG_ENDIAN = frozenset({2 << 24, 3 << 24})
_BEGINNINGS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: run git lfs pull"),
    (b"<!doctype", "a web page, perhaps of a login: download the file itself"),
    (b"<html", "a web page, perhaps of a login: download the file itself"),
    (b"PK\x03\x04", "a ZIP archive or a pickle of torch"),
    (b"\x1f\x8b", "packed with gzip: unpack it first"),
    (b"7z\xbc\xaf", "a 7z archive: unpack it first"),
    (b"lmgg", "the format before GGUF, which is no longer read: get a newer conversion"),
    (b"fmgg", "the format before GGUF, which is no longer read: get a newer conversion"),
    (b"tjgg", "the format before GGUF, which is no longer read: get a newer conversion"),
    (b"algg", "the format before GGUF, which is no longer read: get a newer conversion"),
    (b"\x80", "a pickle, a format that can run code when it is opened"),
    (b"{", "a text in JSON"),
)

_STRING, _ARRAY, _BOOL = 8, 9, 7
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}  # fmt: skip

# ggml's type number -> name, elements of a block, bytes of a block
TYPES: Mapping[int, tuple[str, int, int]] = MappingProxyType({
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 30: ("bf16", 1, 2), 28: ("f64", 1, 8),
    2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50), 20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136), 29: ("iq1_m", 256, 56),
    24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4), 27: ("i64", 1, 8),
    34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66), 39: ("mxfp4", 32, 17), 40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18), 42: ("q2_0", 64, 18),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: ``shape`` as the file has it, the contiguous dimension first."""

    name: str
    shape: tuple[int, ...]
    type: int  # a key of ``TYPES``
    offset: int  # bytes after the header's ``data_start``
    bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Everything before the weights, every offset known to lie inside the file."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[GgufTensor, ...]
    alignment: int
    data_start: int  # bytes from the file's start to the first tensor

    @property
    def architecture(self) -> str:
        """The model family by llama.cpp's name; empty when the file names none."""
        return str(self.metadata.get("general.architecture", ""))

    def of(self, key: str) -> Value | None:
        """The architecture's own value: ``of("block_count")`` is ``llama.block_count``."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_header(path: Path) -> GgufHeader:
    """The header of one GGUF file; raises ModelUnusable with one sentence."""
    try:
        with path.open("rb") as file:
            return _Reader(path, file, path.stat().st_size).header()
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be read: {error.strerror}") from error


def read_parts(path: Path) -> tuple[GgufHeader, ...]:
    """The headers of a model split over several files, given the first; usually just one."""
    first = read_header(path)
    count = first.metadata.get("split.count", 1)
    if not isinstance(count, int) or not 0 <= count <= MOST_PARTS:
        raise ModelUnusable(f"{path}: split.count is {count}; get the file again")
    if count < 2:
        return (first,)
    found = re.fullmatch(r"(.*)-00001-of-(\d{5})(\.gguf)", path.name, re.IGNORECASE)
    if found is None or int(found[2]) != count:
        raise ModelUnusable(
            f"{path} is one of {count} parts; give the one that ends in -00001-of-{count:05}.gguf"
        )
    names = [f"{found[1]}-{part:05}-of-{count:05}{found[3]}" for part in range(2, count + 1)]
    if lost := [name for name in names if not path.with_name(name).exists()]:
        raise ModelUnusable(
            f"{path} is one of {count} parts of a model, and {len(lost)} are not beside it, {lost[0]} first; "
            "get these, too"
        )
    parts = (first, *(read_header(path.with_name(name)) for name in names))
    for number, part in enumerate(parts):
        if part.metadata.get("split.no", number) != number:
            raise ModelUnusable(
                f"{part.path} is called part {number + 1} of {count} and is another one; get it again"
            )
    return parts


def peeked_family(file: Path) -> str:
    """The model family by the first bytes, where converters write it; empty where it is not there.

    For lists of many files: a whole header can take half a second. Raises OSError.
    """
    with file.open("rb") as content:
        found = _FAMILY.search(content.read(_PEEKED))
    return found[1].decode() if found else ""


def first_bytes(file: Path) -> str:
    """What a file that is not GGUF seems to be, from how it begins."""
    with file.open("rb") as content:
        found = content.read(64)
    start = found.lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if not start:
        return "it is empty or blank: get it again"
    if found[5:9] == b"\0\0\0{":
        return "safetensors: give the folder that it is in, with config.json and tokenizer.json"
    return next((kind for sign, kind in _BEGINNINGS if start.startswith(sign.lower())), "unknown")


def _whole(name: str) -> str:
    """How a file that is cut off gets whole, as far as its name tells."""
    if _ONE_OF_SEVERAL.search(name):
        return "it is one piece of a file: join all of them, in their order, to one file"
    if name.lower().endswith(_UNFINISHED):
        return "its download has not ended: let it end first"
    return "get the file again"


def unreadable_version(version: int) -> str:
    """Why a version of the format is not read."""
    if version in _BIG_ENDIAN:
        return "is written for big-endian machines: get the little-endian conversion"
    return (
        f"has GGUF version {version}; supported are versions 2 and 3: get a newer conversion of the "
        "model"
    )


class _Reader:
    """Walks through the header once; never reads past the file's end or its own limits."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path, self._file = path, file
        self._size, self._limit = size, min(size, MOST_HEADER_BYTES)
        self._at = self._elements = 0

    def header(self) -> GgufHeader:
        version = self._version()
        tensors, keys = self._number("Q"), self._number("Q")
        if max(tensors, keys) > MOST_ENTRIES:
            raise self._bad(f"it claims {tensors} tensors and {keys} metadata keys")
        metadata: dict[str, Value] = {}
        for _ in range(keys):
            key = self._name("a metadata key", MOST_KEY_BYTES)
            if key in metadata:
                raise self._bad(f"the metadata key {key!r} is there twice")
            metadata[key] = self._value(key)
        alignment = self._alignment(metadata)
        listed = self._tensors(tensors, alignment)
        start = self._at + -self._at % alignment
        self._check_room(listed, start)
        values = MappingProxyType(metadata)
        return GgufHeader(self._path, version, values, listed, alignment, start)

    def _version(self) -> int:
        if not self._size:
            raise ModelUnusable(f"{self._path} is empty; get the file again")
        if self._take(4) != MAGIC:
            seems = first_bytes(self._path)
            raise ModelUnusable(
                f"{self._path} is not a GGUF file: it does not begin with GGUF ({seems})"
            )
        version = self._number("I")
        if version not in VERSIONS:
            raise ModelUnusable(f"{self._path} {unreadable_version(version)}")
        return version

    def _value(self, key: str) -> Value:
        kind = self._number("I")
        if kind == _ARRAY:
            return self._array(key)
        return self._scalar(key, kind)

    def _scalar(self, key: str, kind: int) -> Scalar:
        if kind == _STRING:
            return self._text(self._number("Q"), f"the text of {key!r}")
        if kind not in _FORMATS:
            raise self._bad(f"{key!r} has the unknown type {kind}")
        value: int | float = self._unpack(_FORMATS[kind])
        if kind == _BOOL and value > 1:
            raise self._bad(f"{key!r} is neither true nor false but {value}")
        return bool(value) if kind == _BOOL else value

    def _array(self, key: str) -> tuple[Scalar, ...]:
        kind, count = self._number("I"), self._number("Q")
        if kind != _STRING and kind not in _FORMATS:
            raise self._bad(f"the list {key!r} has entries of the unknown type {kind}")
        self._elements += count
        if self._elements > MOST_ELEMENTS:
            raise self._bad(f"the list {key!r} claims {count} entries")
        if kind == _STRING:
            return tuple(self._texts(f"a text of {key!r}", count))
        entries = struct.Struct(f"<{count}{_FORMATS[kind]}")
        values = entries.unpack(self._take(entries.size))
        return tuple(map(bool, values)) if kind == _BOOL else values

    def _texts(self, what: str, count: int) -> Iterator[str]:
        """A vocabulary has hundreds of thousands: as little as possible for each."""
        size_at, data, at = struct.Struct("<Q").unpack_from, b"", 0
        for _ in range(count):
            end = at + _LENGTH
            if end > len(data) or (end := end + size_at(data, at)[0]) > len(data):
                self._take(at)
                yield self._text(self._number("Q"), what)
                data, at = self._ahead(), 0
                continue
            yield data[at + _LENGTH : end].decode("utf-8", errors="backslashreplace")
            at = end
        self._take(at)

    def _ahead(self) -> bytes:
        """A piece of what comes next, which stays to be taken."""
        data = self._file.read(min(_PIECE, self._limit - self._at))
        self._file.seek(self._at)
        return data

    def _alignment(self, metadata: Mapping[str, Value]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if (
            not isinstance(alignment, int)
            or not 0 < alignment <= MOST_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise self._bad(f"general.alignment is {alignment!r}, not a power of two")
        return alignment

    def _tensors(self, count: int, alignment: int) -> tuple[GgufTensor, ...]:
        found: dict[str, GgufTensor] = {}
        expected = 0
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in found:
                raise self._bad(f"the tensor {tensor.name!r} is there twice")
            if tensor.offset != expected:  # llama.cpp asks for the same
                raise self._bad(
                    f"the tensor {tensor.name!r} lies at byte {tensor.offset} of the weights, "
                    f"not at {expected}"
                )
            found[tensor.name] = tensor
            expected += tensor.bytes + -tensor.bytes % alignment
        return tuple(found.values())

    def _tensor(self) -> GgufTensor:
        name = self._name("a tensor's name", MOST_NAME_BYTES)
        dimensions = self._number("I")
        if not 1 <= dimensions <= MOST_DIMENSIONS:
            raise self._bad(f"the tensor {name!r} claims {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))
        kind, offset = self._number("I"), self._number("Q")
        if kind not in TYPES:
            raise self._bad(f"the tensor {name!r} has the unknown type {kind}, perhaps a newer one")
        label, block, block_bytes = TYPES[kind]
        if 0 in shape or prod(shape) >= 1 << 63 or shape[0] % block:
            raise self._bad(f"the tensor {name!r} has the impossible shape {shape} for {label}")
        return GgufTensor(name, shape, kind, offset, prod(shape) // block * block_bytes)

    def _check_room(self, tensors: tuple[GgufTensor, ...], start: int) -> None:
        end = max((start + tensor.offset + tensor.bytes for tensor in tensors), default=0)
        if end > self._size:
            raise ModelUnusable(
                f"{self._path} is cut off: its tensors need {end} bytes, it has {self._size}; "
                f"{_whole(self._path.name)}"
            )

    def _name(self, what: str, most: int) -> str:
        size = self._number("Q")
        if not 0 < size <= most:
            raise self._bad(f"{what} claims {size} bytes")
        return self._text(size, what)

    def _text(self, size: int, what: str) -> str:
        if size > self._limit - self._at:
            raise self._bad(f"{what} claims {size} bytes, {self._limit - self._at} are left")
        # Old vocabularies hold single bytes as tokens; escaped, they stay distinct.
        return self._take(size).decode("utf-8", errors="backslashreplace")

    def _number(self, form: str) -> int:
        return int(self._unpack(form))

    def _unpack(self, form: str) -> Any:
        (value,) = struct.unpack("<" + form, self._take(struct.calcsize("<" + form)))
        return value

    def _take(self, size: int) -> bytes:
        if size > self._limit - self._at:
            if self._limit < self._size:
                raise self._bad(f"it is larger than {self._limit} bytes")
            raise ModelUnusable(
                f"{self._path} is cut off: its header does not end within its {self._size} bytes; "
                f"{_whole(self._path.name)}"
            )
        self._at += size
        found = self._file.read(size)
        if len(found) != size:
            raise self._bad("the file shrank while it was read")
        return found

    def _bad(self, what: str) -> ModelUnusable:
        said = f"{self._path} has a damaged header: {what}; {_whole(self._path.name)}"
        return ModelUnusable(said)
