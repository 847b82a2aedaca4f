"""Layer sources in RAM: copied to a CUDA device ahead of the pass, or multiplied where they are.

For a device, as in SpecExec's offloading (arXiv 2406.02532): one layer is one contiguous copy from
pinned memory on its own stream, two buffers alternate, and after the last layer of a pass the first
one of the next is fetched. Streams wait for each other's events; the host never waits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from engine.errors import ModelUnusable
from engine.interfaces.target import Block, MapParts, Streaming
from engine.models.offload.disk import LIBRARY, MOST_ROWS

BUFFERS = 2
ROWS = 256  # of a pass that the limit must have room for
ALIGNMENT = 256  # bytes: where a map may begin inside its layer


class Lane(Protocol):
    """Moves layers into numbered buffers."""

    def copy(self, slot: int, target: Tensor, source: Tensor) -> None:
        """Start to copy after the computations that read the slot."""
        ...

    def acquire(self, slot: int) -> None:
        """Later computations wait for the slot's copy."""
        ...

    def release(self, slot: int) -> None:
        """The computations so far are the last that read the slot."""
        ...


class CudaLane:
    """A stream for copies, and two events for every slot."""

    def __init__(self, device: torch.device, slots: int) -> None:
        """Make the stream; raises RuntimeError without a CUDA device."""
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copied, self._used = ([_event() for _ in range(slots)] for _ in range(2))

    def copy(self, slot: int, target: Tensor, source: Tensor) -> None:
        """Asynchronous, from pinned memory."""
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._used[slot])
            target.copy_(source, non_blocking=True)
            self._copied[slot].record(self._stream)

    def acquire(self, slot: int) -> None:
        """The computing stream waits for the copy."""
        torch.cuda.current_stream().wait_event(self._copied[slot])

    def release(self, slot: int) -> None:
        """Mark the position of the computing stream."""
        self._used[slot].record(torch.cuda.current_stream())


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a map lies inside its layer's bytes."""

    start: int
    rows: int
    columns: int
    dtype: torch.dtype

    def of(self, layer: Tensor) -> Tensor:
        """The map as a view of the layer."""
        size = self.rows * self.columns * self.dtype.itemsize
        flat = layer[self.start : self.start + size].view(self.dtype)
        return flat.view(self.rows, self.columns)


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """All maps of a layer in one piece of memory."""

    data: Tensor  # bytes
    places: dict[str, _Place]


def open_ram(streaming: Streaming) -> "Ram":
    """A source for a CUDA device; raises ModelUnusable where there is none."""
    device = torch.device(streaming.device)
    if device.type != "cuda" or not torch.cuda.is_available():
        raise ModelUnusable(
            f"layers are streamed from RAM to a CUDA device, and {streaming.device!r} is none here"
        )
    layers = pack(replace(streaming, device="cpu"), pinned=True)
    taken = streaming.fixed + ROWS * streaming.row_bytes + LIBRARY
    return Ram(layers, CudaLane(device, BUFFERS), device, streaming.limit - taken)


def pack(streaming: Streaming, *, pinned: bool) -> list[PackedLayer]:
    """Every layer's maps, one after the other, in host memory."""
    maps = joined(streaming)
    found = []
    for index in sorted({layer for layer, _ in maps}):
        own = {p.name: maps.pop((index, p.name)) for p in streaming.maps if p.layer == index}
        places, end = {}, 0
        for name, weight in own.items():
            rows, columns = weight.shape
            places[name] = _Place(end, rows, columns, weight.dtype)
            end += -(-weight.nbytes // ALIGNMENT) * ALIGNMENT
        data = torch.empty(end, dtype=torch.uint8, pin_memory=pinned)
        for name, weight in own.items():
            places[name].of(data).copy_(weight)
        found.append(PackedLayer(data, places))
    return found


class Ram:
    """Keeps the first layers on the device, as many as fit next to the buffers."""

    waited = 0.0  # streams wait, the host does not

    def __init__(
        self, layers: Sequence[PackedLayer], lane: Lane, device: torch.device, room: int
    ) -> None:
        """``room`` bytes of the device are for layers and buffers. Raises ModelUnusable."""
        self._layers, self._lane = list(layers), lane
        largest = max(len(layer.data) for layer in layers)
        self.whole = _fitting(layers, room, BUFFERS * largest)
        if self.whole == len(layers):
            self._buffers: list[Tensor] = []
        elif room < BUFFERS * largest:
            raise ModelUnusable(
                f"two layers of {largest / 1e6:.0f} MB do not fit into the {room / 1e6:.0f} MB that "
                "the limit leaves; raise the limit, or choose a smaller model"
            )
        else:
            self._buffers = [
                torch.empty(largest, dtype=torch.uint8, device=device) for _ in range(BUFFERS)
            ]
        self.widest = MOST_ROWS
        self._kept = [layer.data.to(device) for layer in layers[: self.whole]]
        self.resident = sum(len(data) for data in self._kept)
        self.streamed = sum(len(layer.data) for layer in layers) - self.resident
        self._holds: dict[int, int] = {}  # layer -> its buffer, copied or being copied
        self._busy: int | None = None  # the layer that is being computed

    def blocks(self, layer: int, name: str) -> Iterator[Block]:
        """One block: the whole map, on the device."""
        place = self._layers[layer].places[name]
        if layer < self.whole:
            yield Block(0, place.of(self._kept[layer]))
            return
        if layer != self._busy:
            self._turn_to(layer)
        yield Block(0, place.of(self._buffers[self._holds[layer]]))

    def close(self) -> None:
        """Nothing works in the background once its copies are done."""

    def _turn_to(self, layer: int) -> None:
        """Compute from this layer now, and fetch the next one into the other buffer."""
        if self._busy is not None:
            self._lane.release(self._holds[self._busy])
        if layer not in self._holds:
            self._fetch(layer, 0 if self._busy is None else 1 - self._holds[self._busy])
        self._busy = layer
        self._lane.acquire(self._holds[layer])
        following = layer + 1 if layer + 1 < len(self._layers) else self.whole
        if following not in self._holds:
            self._fetch(following, 1 - self._holds[layer])

    def _fetch(self, layer: int, slot: int) -> None:
        self._holds = {held: at for held, at in self._holds.items() if at != slot} | {layer: slot}
        data = self._layers[layer].data
        self._lane.copy(slot, self._buffers[slot][: len(data)], data)


def _fitting(layers: Sequence[PackedLayer], room: int, buffers: int) -> int:
    """First layers that stay: all of them without buffers, or as many as fit next to buffers."""
    if sum(len(layer.data) for layer in layers) <= room:
        return len(layers)
    room -= buffers
    for count, layer in enumerate(layers):
        room -= len(layer.data)
        if room < 0:
            return count
    return len(layers) - 1


def open_resident(streaming: Streaming) -> "Resident":
    """A source for limits that have room for all maps: reads them once. Raises OSError."""
    return Resident(joined(streaming))


class Resident:
    """Whole maps; nothing moves."""

    widest = MOST_ROWS
    streamed = 0
    waited = 0.0

    def __init__(self, maps: Mapping[tuple[int, str], Tensor]) -> None:
        """Take maps [out, in] by layer and name."""
        self._maps = dict(maps)
        self.whole = 1 + max(layer for layer, _ in self._maps)
        self.resident = sum(weight.nbytes for weight in self._maps.values())

    def blocks(self, layer: int, name: str) -> Iterator[Block]:
        """One block: the whole map."""
        yield Block(0, self._maps[layer, name])

    def close(self) -> None:
        """Nothing works in the background."""


def joined(streaming: Streaming) -> dict[tuple[int, str], Tensor]:
    """Every map in memory, in the type of the computation."""
    dtype, device = getattr(torch, streaming.dtype), torch.device(streaming.device)
    found: dict[str, Tensor] = {}
    wanted = {tensor for parts in streaming.maps for tensor in parts.tensors}
    for file in streaming.files:
        with safe_open(str(file), framework="pt", device="cpu") as shard:
            names = [n for n in shard.keys() if n in wanted]  # noqa: SIM118 - safe_open is no mapping
            found |= {name: shard.get_tensor(name) for name in names}

    def whole(parts: MapParts) -> Tensor:
        return torch.cat([found.pop(name) for name in parts.tensors]).to(device, dtype)

    return {(parts.layer, parts.name): whole(parts) for parts in streaming.maps}
