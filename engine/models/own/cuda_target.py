"""The CUDA target: TorchTarget whose single-sequence passes are recorded once and replayed.

A pass over up to 256 rows is padded to a bucket; all that changes between passes (tokens, positions,
which rows see which) travels in one copy, lengths included. So one CUDA graph per slot and kind of
pass serves a whole conversation, and a pass costs one launch; steps of early exit are passes through
the first layers. Everything else (prompts, and several requests where one pass over all of them is
faster) runs as in TorchTarget, over the same cache.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from engine.decoder.decoder import Attend, block
from engine.decoder.static_cache import Placed, StaticCache
from engine.decoder.weights import DecoderWeights, device_named
from engine.interfaces.target import Grown, Rows, Scores
from engine.models.own.pass_kernels import PassKernels, kernels_for
from engine.models.own.precision import read
from engine.models.own.target import TorchTarget
from engine.platform.device_memory import out_of_memory_as_ours
from engine.request import ModelSpec
from engine.speculation.tree import DraftTree

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WORDS = 16  # of 32 bits: uncommitted rows that a row can see
_HEADER = 4  # numbers before the tokens of a bucket: length, end, start, unused


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
    def start(self) -> Tensor:
        """The first cache row to write, [1]."""
        return self.sent[2:3]

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
class _Kind:
    """What passes have in common that one recording serves."""

    bucket: int  # rows
    layers: int  # the first layers that run
    traced: bool = False  # whether the state after every layer is wanted


@dataclass(frozen=True, slots=True)
class _Found:
    """The output of a pass, for all rows of its bucket; the next replay overwrites it."""

    logits: Tensor  # [b, V]
    normed: Tensor  # [b, C]
    states: Tensor | None  # [layers, b, C], where they were wanted


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A pass that can be replayed while the slot's cache stays where it is."""

    address: int
    inputs: _Inputs
    graph: torch.cuda.CUDAGraph
    found: _Found


_Scoring = Callable[[Sequence[int], Sequence[DraftTree]], list[Scores]]


class CudaTarget(TorchTarget):
    """A TorchTarget that records its passes; raises OutOfMemory where torch does."""

    sums_alike = False

    def __init__(
        self, weights: DecoderWeights, kernels: PassKernels | None, *, graphs: bool
    ) -> None:
        """Without ``kernels`` every pass is TorchTarget's; without ``graphs`` none is recorded."""
        super().__init__(weights)
        self._static = StaticCache(self.cache.shape)
        self.cache = self._static
        self._kernels, self._graphs = kernels, graphs
        if kernels is not None:
            self._between = kernels.between
        self._device = weights.embedding.device
        self._recorded: dict[tuple[int, _Kind], _Recorded] = {}
        self._joining: dict[int, bool] = {}  # sequences -> whether they run in one pass

    @override
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        with out_of_memory_as_ours(self._device):
            super().feed(slot, tokens)

    @override
    @torch.inference_mode()
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Several sequences run one after the other where that was measured to be faster."""
        with out_of_memory_as_ours(self._device):
            fits = all(self._fits(s, len(t), pending=0) for s, t in zip(slots, trees, strict=True))
            if len(trees) == 1 and fits:
                return self._score_separately(slots, trees)
            if not fits or not self._graphs:
                return super().score(slots, trees)
            cold, count = [replace(tree, warm=None) for tree in trees], len(trees)
            if count not in self._joining:
                self._joining[count] = self._faster_joined(slots, cold)
            way = super().score if self._joining[count] else self._score_separately
            return way(slots, cold)

    def _score_separately(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """A tree that ran through early layers runs through them again, with the row that did not.

        The weights of those layers are read once for all its rows, as they would be for that one.
        """
        scores = []
        for slot, tree in zip(slots, trees, strict=True):
            self.crop(slot, self.length(slot))
            found = self._pass(slot, tree.tokens, tree.parents, self.layers, traced=tree.trace)
            rows = slice(len(tree))
            states = None if found.states is None else found.states[:, rows].clone()
            scores.append(Scores(found.logits[rows].clone(), states))
        return scores

    def _faster_joined(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> bool:
        """Whether these are scored sooner in one pass, launch by launch, than in recorded ones.

        A large model's weights are best read once for all; a small one's pass is its launches.
        """
        ways: tuple[_Scoring, ...] = (self._score_separately, super().score)
        separate, joined = (self._seconds(way, slots, trees) for way in ways)
        return joined < separate

    def _seconds(self, way: _Scoring, slots: Sequence[int], trees: Sequence[DraftTree]) -> float:
        """The second time, as the first one builds and records."""
        way(slots, trees)
        torch.cuda.synchronize(self._device)
        started = time.perf_counter()
        way(slots, trees)
        torch.cuda.synchronize(self._device)
        return time.perf_counter() - started

    @override
    @torch.inference_mode()
    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        """A draft model's passes are short: several sequences run one after the other."""
        with out_of_memory_as_ours(self._device):
            if not all(self._fits(r.slot, len(r.tokens), self.pending(r.slot)) for r in batch):
                return super().grow(batch)
            return [self._grow_one(rows) for rows in batch]

    def _grow_one(self, rows: Rows) -> Grown:
        found = self._pass(rows.slot, rows.tokens, rows.parents, self.layers)
        count = len(rows.tokens)
        scored = slice(count - (rows.last or count), count)
        return Grown(found.logits[scored].clone(), found.normed[scored].clone())

    @override
    @torch.inference_mode()
    def shallow(
        self, slots: Sequence[int], tokens: Sequence[int], layers: int
    ) -> tuple[Tensor, Tensor]:
        with out_of_memory_as_ours(self._device):
            if not all(self._fits(slot, 1, self.pending(slot)) for slot in slots):
                return super().shallow(slots, tokens, layers)
            pairs = zip(slots, tokens, strict=True)
            steps = [self._shallow_one(slot, token, layers) for slot, token in pairs]
            logits, states = zip(*steps, strict=True)
            return torch.cat(logits), torch.cat(states, 1)

    def _shallow_one(self, slot: int, token: int, layers: int) -> tuple[Tensor, Tensor]:
        found = self._pass(slot, [token], [self.pending(slot) - 1], layers, traced=True)
        assert found.states is not None
        return found.logits.clone(), found.states.clone()

    @override
    def share(self, source: int, slot: int, length: int) -> None:
        with out_of_memory_as_ours(self._device):
            super().share(source, slot, length)

    def _fits(self, slot: int, rows: int, pending: int) -> bool:
        """Whether the pass has a bucket."""
        if self._kernels is None or not 0 < rows <= BUCKETS[-1]:
            return False
        return pending + rows <= 32 * WORDS

    def _pass(
        self,
        slot: int,
        tokens: Sequence[int],
        parents: Sequence[int],
        layers: int,
        *,
        traced: bool = False,
    ) -> _Found:
        """New rows of one slot through the first layers and the head."""
        kind = _Kind(next(b for b in BUCKETS if b >= len(tokens)), layers, traced)
        placed = self._static.append(slot, parents, kind.bucket)
        self._pending.setdefault(slot, []).extend(tokens)
        return self._run(slot, _numbers(placed, tokens, kind.bucket), kind)

    def _run(self, slot: int, numbers: Tensor, kind: _Kind) -> _Found:
        if not self._graphs:
            return self._step(slot, _Inputs(numbers.to(self._device), kind.bucket), kind)
        address = self._static.layers(slot)[0][0].data_ptr()
        recorded = self._recorded.get((slot, kind))
        if recorded is None or recorded.address != address:
            recorded = self._record(slot, numbers, kind, address)
            self._recorded[slot, kind] = recorded
        recorded.inputs.sent.copy_(numbers.pin_memory(), non_blocking=True)
        recorded.graph.replay()
        return recorded.found

    def _record(self, slot: int, numbers: Tensor, kind: _Kind, address: int) -> _Recorded:
        """Run once to build the kernels, then once to record; both write what the replay will.

        Recordings share the memory pool of one that still exists: torch refuses a pool without owners.
        """
        living = next(iter(self._recorded.values()), None)
        pool = None if living is None else living.graph.pool()  # none run side by side
        inputs = _Inputs(numbers.to(self._device), kind.bucket)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            self._step(slot, inputs, kind)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            found = self._step(slot, inputs, kind)
        return _Recorded(address, inputs, graph, found)

    def _step(self, slot: int, inputs: _Inputs, kind: _Kind) -> _Found:
        """The pass itself, without anything that depends on values the host knows."""
        weights = self._weights
        x = F.embedding(inputs.tokens, weights.embedding)
        rotary = weights.rotary.at(inputs.positions).to(x.device, x.dtype)
        states: list[Tensor] = []
        pairs = zip(weights.layers, *self._static.layers(slot), strict=True)
        for layer, keys, values in islice(pairs, kind.layers):
            turns = (rotary.cos, rotary.sin) if layer.rotates else None
            attend = self._over((keys, values), turns, inputs)
            x = block(layer, weights.arch, x, None, attend, self._between)
            if kind.traced:
                states.append(x)
        normed = self._normed(x)
        traced = torch.stack(states) if kind.traced else None
        return _Found(weights.head(normed), normed, traced)

    def _over(
        self,
        cache: tuple[Tensor, Tensor],
        turns: tuple[Tensor, Tensor] | None,
        inputs: _Inputs,
    ) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            assert self._kernels is not None
            turned = self._kernels.placing((q, k, v), turns, cache, inputs.start)
            return self._kernels.attention(turned, *cache, inputs.bits, inputs.extent)

        return attend


def _numbers(placed: Placed, tokens: Sequence[int], bucket: int) -> Tensor:
    """What ``_Inputs`` is made of, on the host. Padded rows see the prefix alone; no row sees them."""
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


def load(spec: ModelSpec) -> CudaTarget:
    """A target over a local Hugging Face folder; raises ModelUnusable."""
    device = device_named("cuda" if spec.device == "cpu" else spec.device)
    with out_of_memory_as_ours(device):
        return on_device(read(spec, device))


def on_device(weights: DecoderWeights) -> CudaTarget:
    """With kernels and recorded passes where there are kernels for these weights."""
    kernels = kernels_for(weights.arch)
    return CudaTarget(weights, kernels, graphs=kernels is not None)
