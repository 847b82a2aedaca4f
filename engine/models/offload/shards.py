"""Shards: runs of output rows of a map, which are read, kept and multiplied one at a time.

A layer may be larger than the memory for weights, so layers are cut. The rows of a matrix are
consecutive in the file: a shard is one sequential read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import ModelUnusable
from engine.interfaces.target import MapParts
from engine.models.offload.tensor_ranges import TensorRange

PAGE = 4096  # direct reads start and end at multiples of it


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows [first, first + rows) of a layer's map, wholly inside one tensor."""

    layer: int
    tensor: str
    extent: TensorRange
    row: int  # inside the tensor
    rows: int
    first: int  # inside the map

    @property
    def start(self) -> int:
        """First byte in the file."""
        return self.extent.start + self.row * self.extent.row_bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return self.rows * self.extent.row_bytes

    @property
    def span(self) -> tuple[int, int]:
        """The pages around it: first byte, and bytes."""
        first = self.start - self.start % PAGE
        last = -(-(self.start + self.size) // PAGE) * PAGE
        return first, last - first


def cut(
    maps: Sequence[MapParts], extents: Mapping[str, TensorRange], most: int
) -> dict[tuple[int, str], tuple[Shard, ...]]:
    """The shards of every map, none with a span above ``most`` bytes unless one row is longer."""
    return {(m.layer, m.name): tuple(_shards(m, extents, most)) for m in maps}


def _shards(parts: MapParts, extents: Mapping[str, TensorRange], most: int) -> Iterator[Shard]:
    first = 0
    for tensor in parts.tensors:
        extent = extents.get(tensor)
        if extent is None:
            raise ModelUnusable(
                f"the tensor {tensor} cannot be streamed: it is no matrix of float32, float16 or "
                "bfloat16 numbers; load the model without a limit, or a converted copy of it"
            )
        fitting = max(1, (most - 2 * PAGE) // extent.row_bytes)
        count = -(-extent.rows // fitting)
        for number in range(count):  # of nearly the same size
            row = extent.rows * number // count
            end = extent.rows * (number + 1) // count
            yield Shard(parts.layer, tensor, extent, row, end - row, first + row)
        first += extent.rows
