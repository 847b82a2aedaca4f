"""Disk source: weights that do not fit in memory are read from their files in every pass."""

import mmap
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import ModelUnusable
from engine.interfaces.target import Block, Streaming
from engine.models.offload.direct_files import Read, Weights, open_weights, pages, read_into
from engine.models.offload.prefetch_buffer import PATIENCE, PrefetchBuffer
from engine.models.offload.shards import PAGE, Shard, cut
from engine.models.offload.tensor_ranges import locate

BUFFERS = 4  # one is multiplied, one is ready, two are being filled; few, so that each is large
LARGEST_BUFFER, SMALLEST_BUFFER = 32 << 20, 1 << 20
ROWS_SHARE = 4  # a pass may take this part of the limit for its own rows
MOST_ROWS, FEWEST_ROWS = 2049, 16
LIBRARY = 320 << 20  # bytes that torch takes: code, copies while it multiplies, allocator


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Bytes, all inside one limit."""

    buffer: int  # of each of ``BUFFERS``
    held: int  # weights that are read once and stay
    widest: int  # rows of the longest pass


def divide(limit: int, fixed: int, row: int) -> MemoryBudget:
    """``fixed`` bytes are taken already, a pass takes ``row`` bytes for each row.

    Raises ModelUnusable when the limit is too small to stream anything.
    """
    library = min(LIBRARY, limit // 3)
    buffer = min(LARGEST_BUFFER, max(SMALLEST_BUFFER, limit // (8 * BUFFERS)))
    needed = fixed + library + BUFFERS * buffer + FEWEST_ROWS * row
    if limit < needed:
        raise ModelUnusable(
            f"a limit of {limit / 1e6:.0f} MB is too small to stream this model: its embedding, "
            f"buffers and a short pass need {needed / 1e6:.0f} MB; raise the limit"
        )
    spare = (limit - needed) // row
    share = limit // ROWS_SHARE // row
    widest = max(FEWEST_ROWS, min(share, MOST_ROWS, FEWEST_ROWS + spare // 2))
    return MemoryBudget(buffer, limit - needed - (widest - FEWEST_ROWS) * row, widest)


def open_disk(streaming: Streaming) -> "Disk":
    """A source over safetensors files; raises ModelUnusable."""
    return Disk(streaming, read_into)


class Disk:
    """The first shards of a pass stay in memory, as many as the limit has room for.

    The others go through buffers that are filled ahead of the pass. Every read is checked:
    a file that changed, ended early or failed gives LayerUnreadable, never other weights.
    """

    def __init__(
        self, streaming: Streaming, read: Read = read_into, patience: float = PATIENCE
    ) -> None:
        """Open the files and read what stays; ``read`` is replaced to inject faults."""
        budget = divide(streaming.limit, streaming.fixed, streaming.row_bytes)
        self.widest = budget.widest
        self._files = {file: open_weights(file) for file in streaming.files}
        self._read = read
        self._maps = cut(streaming.maps, locate(streaming.files), budget.buffer)
        shards = [shard for parts in self._maps.values() for shard in parts]
        kept = _fitting(shards, budget.held)
        self._held = {shard: self._whole(shard) for shard in shards[:kept]}
        moving = shards[kept:]
        self.streamed = sum(shard.size for shard in moving)  # bytes of every pass
        self.resident = sum(shard.size for shard in self._held)
        self.whole = moving[0].layer if moving else streaming.maps[-1].layer + 1
        reader = _Reader(self._files, read)
        self._prefetch = PrefetchBuffer(moving, reader, BUFFERS, patience) if moving else None
        self._finalizer = weakref.finalize(
            self, _close, self._prefetch, tuple(self._files.values())
        )

    @property
    def waited(self) -> float:
        """Seconds that passes have waited for the disk."""
        return self._prefetch.waited if self._prefetch else 0.0

    @property
    def ahead(self) -> int:
        """Most bytes that are read ahead of a pass."""
        return self._prefetch.size if self._prefetch else 0

    @property
    def buffered(self) -> int:
        """Shards that are read ahead and not used yet."""
        return self._prefetch.buffered if self._prefetch else 0

    def blocks(self, layer: int, name: str) -> Iterator[Block]:
        """The map's rows shard by shard; a block is valid until the next one is taken."""
        for shard in self._maps[layer, name]:
            held = self._held.get(shard)
            if held is not None:
                yield Block(shard.first, held)
                continue
            assert self._prefetch is not None  # a shard is held or prefetched
            buffer = self._prefetch.take(shard)
            try:
                yield Block(shard.first, _view(shard, buffer))
            finally:
                self._prefetch.give_back(buffer)

    def close(self) -> None:
        """Stop the readers and close the files."""
        self._finalizer()

    def _whole(self, shard: Shard) -> Tensor:
        """A shard in memory of its own."""
        buffer = pages(shard.span[1])
        _Reader(self._files, self._read)(shard, memoryview(buffer))
        return _view(shard, buffer)


class _Reader:
    """Reads spans; used by the reading threads, which must not keep the source alive."""

    def __init__(self, files: dict[Path, Weights], read: Read) -> None:
        self._files, self._read = files, read

    def __call__(self, shard: Shard, buffer: memoryview) -> None:
        """Raises OSError when the file is not what it was or gives too little."""
        file = self._files[shard.extent.file]
        file.check()
        start, size = shard.span
        wanted = min(size, file.size - start)  # the last page of a file may be cut
        count = self._read(file.descriptor, buffer, start)
        if count < wanted:
            raise OSError(f"the file gave {count} of {wanted} bytes at {start}")
        file.check()  # it may have changed while it was read
        file.drop_cached(start, size)


def _view(shard: Shard, buffer: mmap.mmap) -> Tensor:
    """The shard's matrix inside its pages."""
    flat = torch.frombuffer(
        buffer,
        dtype=shard.extent.dtype,
        count=shard.rows * shard.extent.columns,
        offset=shard.start % PAGE,
    )
    return flat.view(shard.rows, shard.extent.columns)


def _fitting(shards: list[Shard], budget: int) -> int:
    """How many of the first shards fit."""
    for count, shard in enumerate(shards):
        budget -= shard.span[1]
        if budget < 0:
            return count
    return len(shards)


def _close(prefetch: PrefetchBuffer | None, files: tuple[Weights, ...]) -> None:
    if prefetch is not None:
        prefetch.close()
    for file in files:
        file.close()
