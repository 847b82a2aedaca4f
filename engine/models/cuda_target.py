"""The CUDA target: TorchTarget whose single-sequence passes are recorded once and replayed.

A pass over up to 256 rows is padded to a bucket; all that changes between passes (tokens, positions,
which rows see which) travels in one copy, lengths included. So one CUDA graph per slot and bucket
serves a whole conversation, and a pass costs one launch. Everything else (prompts, several requests
in one pass, early exit) runs as in TorchTarget, over the same cache.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from engine.decode.tree import DraftTree
from engine.errors import ModelUnusable, OutOfMemory
from engine.models.decoder import Attend, block
from engine.models.precision import read
from engine.models.static_cache import Placed, StaticCache
from engine.models.torch_target import TorchTarget
from engine.models.weights import DecoderWeights
from engine.protocols.target import Grown, Rows, Scores
from engine.request import ModelSpec

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WORDS = 16  # of 32 bits: uncommitted rows that a row can see
_HEADER = 4  # numbers before the tokens of a bucket: length, end, start, unused
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(q [n, H, D], keys [K, T, D], values, bits [n, W] int32, extent [2] int32) -> [n, H, D]."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What one pass of a bucket of b rows reads; all of it views of ``sent``."""

    sent: Tensor  # [4 + b * (2 + W)] int32
    bucket: int

    @property
    def extent(self) -> Tensor:
        """Length of the prefix and end of the rows, [2]."""
        return self.sent[:2]

    @property
    def rows(self) -> Tensor:
        """Cache rows to write, [b] int64."""
        return self.sent[2].long() + torch.arange(self.bucket, device=self.sent.device)

    @property
    def tokens(self) -> Tensor:
        """[b]."""
        return self.sent[_HEADER : _HEADER + self.bucket]

    @property
    def positions(self) -> Tensor:
        """[b]."""
        return self.sent[_HEADER + self.bucket : _HEADER + 2 * self.bucket]

    @property
    def bits(self) -> Tensor:
        """[b, W]."""
        return self.sent[_HEADER + 2 * self.bucket :].view(self.bucket, WORDS)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A pass that can be replayed while the slot's cache stays where it is."""

    address: int
    inputs: _Inputs
    graph: torch.cuda.CUDAGraph
    found: tuple[Tensor, Tensor]  # logits [b, V], normed states [b, C]


class CudaTarget(TorchTarget):
    """Target, DraftModel and LayeredTarget; raises OutOfMemory where torch does."""

    def __init__(
        self, weights: DecoderWeights, attention: Attention | None, *, graphs: bool
    ) -> None:
        """Without ``attention`` every pass is TorchTarget's; without ``graphs`` none is recorded."""
        super().__init__(weights)
        self._static = StaticCache(self.cache.shape)
        self.cache = self._static
        self._attention, self._graphs = attention, graphs
        self._device = weights.embedding.device
        self._recorded: dict[tuple[int, int], _Recorded] = {}

    @override
    def feed(self, slot: int, tokens: Sequence[int], trace: int = 0) -> Tensor | None:
        with self._typed():
            return super().feed(slot, tokens, trace)

    @override
    @torch.inference_mode()
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        with self._typed():
            tree = trees[0]
            fits = len(trees) == 1 and self._fits(slots[0], len(tree), behind=0)
            if not fits or tree.warm is not None or tree.trace:
                return super().score(slots, trees)
            self.crop(slots[0], self.length(slots[0]))
            logits, _ = self._pass(slots[0], tree.tokens, tree.parents)
            return [Scores(logits)]

    @override
    @torch.inference_mode()
    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        with self._typed():
            rows = batch[0]
            behind = self.pending(rows.slot)
            if len(batch) != 1 or not self._fits(rows.slot, len(rows.tokens), behind):
                return super().grow(batch)
            logits, hidden = self._pass(rows.slot, rows.tokens, rows.parents)
            asked = slice(-(rows.last or len(rows.tokens)), None)
            return [Grown(logits[asked], hidden[asked])]

    @override
    def shallow(
        self, slots: Sequence[int], tokens: Sequence[int], layers: int
    ) -> tuple[Tensor, Tensor]:
        with self._typed():
            return super().shallow(slots, tokens, layers)

    @override
    def share(self, source: int, slot: int, length: int) -> None:
        with self._typed():
            super().share(source, slot, length)

    def _fits(self, slot: int, rows: int, behind: int) -> bool:
        """Whether the pass has a bucket."""
        if self._attention is None or not 0 < rows <= BUCKETS[-1]:
            return False
        return behind + rows <= 32 * WORDS

    def _pass(
        self, slot: int, tokens: Sequence[int], parents: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Logits [n, V] and normed states [n, C] of new rows of one slot; the caller's to keep."""
        bucket = next(b for b in BUCKETS if b >= len(tokens))
        placed = self._static.append(slot, parents, bucket)
        self._pending.setdefault(slot, []).extend(tokens)
        numbers = _numbers(placed, tokens, bucket)
        logits, hidden = self._run(slot, numbers, bucket)
        return logits[: len(tokens)], hidden[: len(tokens)]

    def _run(self, slot: int, numbers: Tensor, bucket: int) -> tuple[Tensor, Tensor]:
        if not self._graphs:
            return self._step(slot, _Inputs(numbers.to(self._device), bucket))
        address = self._static.layers(slot)[0][0].data_ptr()
        recorded = self._recorded.get((slot, bucket))
        if recorded is None or recorded.address != address:
            recorded = self._record(slot, numbers, bucket, address)
            self._recorded[slot, bucket] = recorded
        recorded.inputs.sent.copy_(numbers.pin_memory(), non_blocking=True)
        recorded.graph.replay()
        logits, hidden = recorded.found
        return logits.clone(), hidden.clone()  # the next replay writes over them

    def _record(self, slot: int, numbers: Tensor, bucket: int, address: int) -> _Recorded:
        """Run once to build the kernels, then once to record; both write what the replay will."""
        inputs = _Inputs(numbers.to(self._device), bucket)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._step(slot, inputs)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = self._step(slot, inputs)
        return _Recorded(address, inputs, graph, found)

    def _step(self, slot: int, inputs: _Inputs) -> tuple[Tensor, Tensor]:
        """The pass itself, without anything that depends on values the host knows."""
        weights = self._weights
        x = F.embedding(inputs.tokens, weights.embedding)
        rotary = weights.rotary.at(inputs.positions).to(x.device, x.dtype)
        rows = inputs.rows
        pairs = zip(weights.layers, *self._static.layers(slot), strict=True)
        for layer, keys, values in pairs:
            x = block(layer, weights.arch, x, rotary, self._over(keys, values, rows, inputs))
        normed = self._normed(x)
        return weights.head(normed), normed

    def _over(self, keys: Tensor, values: Tensor, rows: Tensor, inputs: _Inputs) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            assert self._attention is not None
            keys.index_copy_(1, rows, k.transpose(0, 1))
            values.index_copy_(1, rows, v.transpose(0, 1))
            return self._attention(q, keys, values, inputs.bits, inputs.extent)

        return attend

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Torch's own error becomes OutOfMemory with the numbers of this device."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            free, total = 0, 0
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
                free, total = torch.cuda.mem_get_info(self._device)
            raise OutOfMemory(_requested(str(error)), free, total) from error


def _numbers(placed: Placed, tokens: Sequence[int], bucket: int) -> Tensor:
    """What ``_Inputs`` is made of, on the host. Padded rows see the prefix alone; nobody sees them."""
    count = len(tokens)
    sent = np.zeros(_HEADER + bucket * (2 + WORDS), dtype=np.int32)
    sent[:3] = placed.length, placed.start + count, placed.start
    sent[_HEADER : _HEADER + count] = tokens
    sent[_HEADER + bucket : _HEADER + bucket + count] = placed.positions
    wide = np.zeros((bucket, 32 * WORDS), dtype=bool)
    wide[:count, : placed.seen.shape[1]] = placed.seen
    packed = np.packbits(wide, axis=1, bitorder="little").view(np.int32)
    sent[_HEADER + 2 * bucket :] = packed.ravel()
    return torch.from_numpy(sent)


def masked_attention(
    q: Tensor, keys: Tensor, values: Tensor, bits: Tensor, extent: Tensor
) -> Tensor:
    """The reference of ``kernels.tree_attention``: torch's attention with the mask written out."""
    length, end = extent.tolist()
    place = torch.arange(end - length, device=q.device)
    seen = (bits[:, place // 32] >> (place % 32)) & 1
    mask = torch.zeros(len(q), end, dtype=q.dtype, device=q.device)
    mask[:, length:].masked_fill_(seen == 0, -torch.inf)
    mixed = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None, :, :end], values[None, :, :end], mask, enable_gqa=True
    )
    return mixed[0].transpose(0, 1).nan_to_num()  # a padded row may see nothing at all


def _requested(message: str) -> int:
    """Bytes that torch says it tried to allocate; 0 where it says nothing."""
    found = re.search(r"allocate ([\d.]+) (bytes|KiB|MiB|GiB)", message)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0


def load(spec: ModelSpec) -> CudaTarget:
    """A target over a local Hugging Face folder; raises ModelUnusable."""
    if not torch.cuda.is_available():
        raise ModelUnusable(f"device {spec.device!r} was asked for, but torch finds no CUDA device")
    device = torch.device("cuda" if spec.device == "cpu" else spec.device)
    return on_device(read(spec, device))


def on_device(weights: DecoderWeights) -> CudaTarget:
    """With the kernel and recorded passes where Triton is there and the heads suit it."""
    width = weights.arch.head_dim
    if find_spec("triton") is None or width < 16 or width & (width - 1):
        return CudaTarget(weights, None, graphs=False)
    from engine.kernels.tree_attention import tree_attention

    return CudaTarget(weights, tree_attention, graphs=True)
