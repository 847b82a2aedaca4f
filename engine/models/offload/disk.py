"""Disk source: weights that do not fit in memory are read from their files in every pass."""

import mmap
import weakref
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from engine.interfaces.target import Block, Streaming
from engine.models.offload.direct_files import Read, Weights, open_weights, pages, read_into
from engine.models.offload.memory_budget import BUFFERS, divide
from engine.models.offload.prefetch_buffer import PATIENCE, PrefetchBuffer
from engine.models.offload.shards import PAGE, Shard, cut
from engine.models.offload.tensor_ranges import locate


def open_disk(streaming: Streaming) -> "Disk":
    """A source over safetensors files; raises ModelUnusable."""
    return Disk(streaming, read_into)


class Disk:
    """The first pieces of a pass stay in memory, as many as the limit has room for.

    The others go through a ring of buffers that is filled ahead of the pass. Every read is checked:
    a file that changed, ended early or failed gives LayerUnreadable, never other weights.
    """

    def __init__(
        self, streaming: Streaming, read: Read = read_into, patience: float = PATIENCE
    ) -> None:
        """Open the files and read what stays; ``read`` is replaced to inject faults."""
        room = divide(streaming.limit, streaming.fixed, streaming.row_bytes)
        self.widest = room.widest
        self._files = {file: open_weights(file) for file in streaming.files}
        self._read = read
        self._maps = cut(streaming.maps, locate(streaming.files), room.buffer)
        pieces = [piece for parts in self._maps.values() for piece in parts]
        kept = _fitting(pieces, room.held)
        self._held = {piece: self._whole(piece) for piece in pieces[:kept]}
        moving = pieces[kept:]
        self.streamed = sum(piece.size for piece in moving)  # bytes of every pass
        self.resident = sum(piece.size for piece in self._held)
        self.whole = moving[0].layer if moving else streaming.maps[-1].layer + 1
        filled = _Filling(self._files, read)
        self._ring = PrefetchBuffer(moving, filled, BUFFERS, patience) if moving else None
        self._finalizer = weakref.finalize(self, _close, self._ring, tuple(self._files.values()))

    @property
    def waited(self) -> float:
        """Seconds that passes have waited for the disk."""
        return self._ring.waited if self._ring else 0.0

    @property
    def ahead(self) -> int:
        """Bytes that are read ahead at most: what a pass may find read when it begins."""
        return self._ring.size if self._ring else 0

    def blocks(self, layer: int, name: str) -> Iterator[Block]:
        """The map's rows piece by piece; a block lives until the next one is asked for."""
        for piece in self._maps[layer, name]:
            held = self._held.get(piece)
            if held is not None:
                yield Block(piece.first, held)
                continue
            assert self._ring is not None  # a piece is held or in the ring
            buffer = self._ring.take(piece)
            try:
                yield Block(piece.first, _view(piece, buffer))
            finally:
                self._ring.give_back(buffer)

    def close(self) -> None:
        """End the readers and close the files."""
        self._finalizer()

    def _whole(self, piece: Shard) -> Tensor:
        """A piece in memory of its own."""
        buffer = pages(piece.span[1])
        _Filling(self._files, self._read)(piece, memoryview(buffer))
        return _view(piece, buffer)


class _Filling:
    """Reads spans; known to the ring's threads, which must not keep the source alive."""

    def __init__(self, files: dict[Path, Weights], read: Read) -> None:
        self._files, self._read = files, read

    def __call__(self, piece: Shard, buffer: memoryview) -> None:
        """Raises OSError when the file is not what it was or gives too little."""
        file = self._files[piece.extent.file]
        file.check()
        start, size = piece.span
        wanted = min(size, file.size - start)  # the last page of a file may be cut
        count = self._read(file.descriptor, buffer, start)
        if count < wanted:
            raise OSError(f"the file gave {count} of {wanted} bytes at {start}")
        file.check()  # it may have changed while it was read
        file.drop_cached(start, size)


def _view(piece: Shard, buffer: mmap.mmap) -> Tensor:
    """The piece's matrix inside the pages around it."""
    flat = torch.frombuffer(
        buffer,
        dtype=piece.extent.dtype,
        count=piece.rows * piece.extent.columns,
        offset=piece.start % PAGE,
    )
    return flat.view(piece.rows, piece.extent.columns)


def _fitting(pieces: list[Shard], room: int) -> int:
    """How many of the first pieces fit."""
    for count, piece in enumerate(pieces):
        room -= piece.span[1]
        if room < 0:
            return count
    return len(pieces)


def _close(ring: PrefetchBuffer | None, files: tuple[Weights, ...]) -> None:
    if ring is not None:
        ring.close()
    for file in files:
        file.close()
