"""The torch target over layers that come from a source: models larger than memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import override

from engine.decoder.decoder import Dense, Layer, Linear
from engine.decoder.weights import DecoderWeights, StoredDecoder, device_named, dtype_named, mapped
from engine.errors import ModelUnusable
from engine.interfaces.target import LayerSource, MapParts, Streaming
from engine.models.own.precision import change
from engine.models.own.streamed_linear import Scratch, StreamedFeedForward, StreamedMap
from engine.models.own.target import TorchTarget
from engine.platform.upcast_linear import UpcastLinear, Widening, wide_type
from engine.request import ModelSpec

OpenSource = Callable[[Streaming], LayerSource]

FORWARD_COPIES = 2  # numbers for every hidden unit and row: its value, and what libraries copy


class StreamedTarget(TorchTarget):
    """A torch target that keeps every pass within the rows that its source has room for."""

    def __init__(self, weights: DecoderWeights, source: LayerSource) -> None:
        super().__init__(weights)
        self.source: LayerSource = source

    @override
    def early_draft_model(self, layers: int) -> TorchTarget | None:
        """The first of these layers that stay in memory, with the head: a draft model of their own.

        It shares the weights and has its own cache. None where not one whole layer stays.
        """
        stay = min(layers, self.source.whole)
        if stay == 0:
            return None
        whole = self._weights
        return TorchTarget(
            replace(
                whole,
                arch=replace(whole.arch, layers=stay),
                layers=whole.layers[:stay],
                parameters=whole.parameters * stay // self.layers,
            )
        )

    @override
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit a prompt chunk, in several passes where it is longer than the widest.

        When one of them is aborted, those before it stay.
        """
        widest = self.source.widest
        for at in range(0, len(tokens), widest):
            held = self.length(slot)
            super().feed(slot, tokens[at : at + widest])
            if self.length(slot) == held:
                return


def load_streamed(spec: ModelSpec, open_source: OpenSource) -> StreamedTarget:
    """A target that holds ``spec.resident`` bytes and reads the rest; raises ModelUnusable."""
    _check(spec)
    dtype, device = dtype_named(spec.dtype), device_named(spec.device)
    stored = StoredDecoder(Path(spec.folder), spec.context)
    # copies: a file that is cut later must not take pages away from under the tensors
    outer = mapped(stored.outer(dtype, device, copied=True), change(spec, device, dtype))
    outlines = [_outline(stored, index, (dtype, device)) for index in range(stored.arch.layers)]
    source = open_source(_streaming(spec, outer, stored))
    connect = _Connection(source, _widening(device, dtype))
    layers = tuple(connect.connected(layer, i) for i, layer in enumerate(outlines))
    return StreamedTarget(replace(outer, layers=layers), source)


def _widening(device: torch.device, dtype: torch.dtype) -> Widening | None:
    in_float32 = device.type == "cpu" and wide_type(device, dtype) == torch.float32
    return Widening() if in_float32 else None


def _check(spec: ModelSpec) -> None:
    if spec.inflate > 1:
        raise ModelUnusable("a streamed model is read as it is stored and cannot be inflated")
    if spec.weights != "full":
        raise ModelUnusable(
            f"a streamed model is read as it is stored, not as {spec.weights}; drop the limit or "
            "ask for full weights"
        )


def _outline(stored: StoredDecoder, index: int, kind: tuple[torch.dtype, torch.device]) -> Layer:
    """The layer with its vectors, and with matrices that have shapes but no data."""
    names, checkpoint = stored.layer_names(index), stored.checkpoint
    vectors = [name for name in names if len(checkpoint.shape(name)) == 1]
    tensors = {name: found.clone() for name, found in checkpoint.read(vectors, *kind).items()}
    for name in set(names) - set(vectors):
        tensors[name] = torch.empty(checkpoint.shape(name), dtype=kind[0], device="meta")
    return stored.layer(index, tensors)


def _streaming(spec: ModelSpec, outer: DecoderWeights, stored: StoredDecoder) -> Streaming:
    names, arch = stored.family.names, outer.arch
    dtype, device = outer.embedding.dtype, outer.embedding.device
    size, computed = dtype.itemsize, wide_type(device, dtype).itemsize
    wide = (arch.heads + 2 * arch.kv_heads) * arch.head_dim
    own = arch.vocab * arch.hidden * size
    table = arch.context * arch.head_dim * 8
    assert spec.resident is not None
    return Streaming(
        files=tuple(stored.checkpoint.files),
        maps=tuple(
            MapParts(index, name, tuple(f"{part}.weight" for part in names.parts(index, name)))
            for index in range(arch.layers)
            for name in names.maps
        ),
        limit=spec.resident,
        fixed=own + (0 if _reads(outer.head, outer.embedding) else own) + table,
        row_bytes=computed * (FORWARD_COPIES * arch.feed_forward + wide + 8 * arch.hidden)
        + 8 * arch.vocab,
        dtype=spec.dtype,
        device=spec.device,
    )


def _reads(head: Linear, embedding: Tensor) -> bool:
    """Whether the head needs no memory of its own: it is tied, and has no layout of its own."""
    return isinstance(head, Dense | UpcastLinear) and head.weight is embedding


class _Connection:
    """Makes layers whose maps read from a source."""

    def __init__(self, source: LayerSource, widening: Widening | None) -> None:
        self._source, self._widening = source, widening
        self._scratch = Scratch()

    def connected(self, layer: Layer, index: int) -> Layer:
        """The layer with maps that ask the source."""
        gate_up = self._map(index, "gate_up", layer.gate_up)
        down = self._map(index, "down", layer.down)
        return replace(
            layer,
            qkv=self._map(index, "qkv", layer.qkv),
            out=self._map(index, "out", layer.out),
            gate_up=gate_up,
            down=down,
            joined=StreamedFeedForward(gate_up, down, self._scratch),
        )

    def _map(self, index: int, name: str, outline: Linear) -> StreamedMap:
        assert isinstance(outline, Dense)  # as ``layer_from`` makes them
        rows = len(outline.weight)
        return StreamedMap(self._source, index, name, rows, self._widening, outline.bias)
