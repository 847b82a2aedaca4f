"""The first layers of a GGUF file as a file of their own: early exit for llama.cpp, as a draft model.

llama.cpp cannot stop after layer E, but it runs a shorter model. Header entries and tensors are
copied as they are, so the short file has the same quantisation and the same vocabulary, and its
final norm and head read layer E. Unlike early exit in torch, nothing is shared with the verifying
pass: the first layers run again there, and the short model has a cache of its own.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.errors import ModelUnusable
from engine.models.gguf.header import GgufHeader, GgufTensor, read_header

CHUNK = 1 << 24  # bytes copied at once
_STRING, _ARRAY = 8, 9
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_FIXED = 24  # magic, version, counts


def first_layers(source: Path, layers: int, folder: Path) -> Path:
    """The file with only the first ``layers``, written to ``folder`` unless it is there already.

    Its name contains the source's size and time, so a changed source gets a new file. Raises
    ModelUnusable.
    """
    header = read_header(source)
    depth = header.of("block_count")
    if not isinstance(depth, int) or not 0 < layers < depth:
        raise ModelUnusable(f"{source} has {depth} layers; draft with 1 to {depth} less one")
    if header.metadata.get("split.count", 1) not in (0, 1):
        raise ModelUnusable(f"{source} is one of several parts; join them to draft with layers")
    state = source.stat()
    mark = f"{state.st_size:x}-{state.st_mtime_ns:x}"
    target = folder / f"{source.stem}.first-{layers}.{mark}.gguf"
    if not target.exists():
        _write(header, depth, layers, target)
    return target


@dataclass(frozen=True, slots=True)
class _Entry:
    """One metadata entry: its bytes, and where its value begins in them."""

    key: str
    raw: bytes
    value: int  # of the four bytes that name the type


def _write(header: GgufHeader, depth: int, layers: int, target: Path) -> None:
    kept = [tensor for tensor in header.tensors if _layer(tensor.name) < layers]
    prefix = f"{header.architecture}."
    with header.path.open("rb") as file:
        entries = [
            _shortened(entry, prefix, depth, layers)
            for entry in _entries(file, len(header.metadata))
        ]
        infos, offset = [], 0
        for tensor in kept:
            infos.append(_info(tensor, offset))
            offset += tensor.bytes + -tensor.bytes % header.alignment
        counts = struct.pack("<4sIQQ", b"GGUF", header.version, len(kept), len(entries))
        head = b"".join((counts, *entries, *infos))
        fresh = target.with_name(f"{target.name}.{os.getpid()}.part")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with fresh.open("wb") as out:
                out.write(head + bytes(-len(head) % header.alignment))
                for tensor in kept:
                    _copy(file, header.data_start + tensor.offset, tensor.bytes, out)
                    out.write(bytes(-tensor.bytes % header.alignment))
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)


def _layer(name: str) -> int:
    """Which layer a tensor belongs to; -1 for embedding, final norm and head."""
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blk" and parts[1].isdecimal() else -1


def _entries(file: BinaryIO, count: int) -> list[_Entry]:
    """All entries; ``read_header`` has checked that they end inside the file."""
    file.seek(_FIXED)
    found = []
    for _ in range(count):
        start = file.tell()
        key = file.read(_unsigned(file, 8)).decode(errors="backslashreplace")
        value = file.tell()
        _skip(file, _unsigned(file, 4))
        end = file.tell()
        file.seek(start)
        found.append(_Entry(key, file.read(end - start), value - start))
    return found


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        file.seek(_unsigned(file, 8), os.SEEK_CUR)
    elif kind == _ARRAY:
        kind, count = _unsigned(file, 4), _unsigned(file, 8)
        if kind == _STRING:
            for _ in range(count):
                _skip(file, kind)
        else:
            file.seek(count * _WIDTHS[kind], os.SEEK_CUR)
    else:
        file.seek(_WIDTHS[kind], os.SEEK_CUR)


def _unsigned(file: BinaryIO, width: int) -> int:
    return int.from_bytes(file.read(width), "little")


def _shortened(entry: _Entry, prefix: str, depth: int, layers: int) -> bytes:
    """The entry for a shorter model: the number of layers, and lists with a value for each layer."""
    head, body = entry.raw[: entry.value], entry.raw[entry.value + 4 :]
    kind = int.from_bytes(entry.raw[entry.value : entry.value + 4], "little")
    if entry.key == f"{prefix}block_count":
        return head + struct.pack("<I", kind) + layers.to_bytes(_WIDTHS[kind], "little")
    if not entry.key.startswith(prefix) or kind != _ARRAY:
        return entry.raw
    inner, count = struct.unpack_from("<IQ", body)
    if count != depth or inner == _STRING:
        return entry.raw
    values = body[12 : 12 + layers * _WIDTHS[inner]]
    return head + struct.pack("<IIQ", _ARRAY, inner, layers) + values


def _info(tensor: GgufTensor, offset: int) -> bytes:
    name = tensor.name.encode()
    shape = struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
    return b"".join((
        struct.pack("<Q", len(name)), name, struct.pack("<I", len(tensor.shape)), shape,
        struct.pack("<IQ", tensor.type, offset),
    ))  # fmt: skip


def _copy(file: BinaryIO, start: int, size: int, out: BinaryIO) -> None:
    file.seek(start)
    while size:
        part = file.read(min(size, CHUNK))
        if not part:
            raise ModelUnusable("the file shrank while its layers were copied; get it again")
        out.write(part)
        size -= len(part)
