"""The torch target: own decoder over own cache; scores trees, grows drafts, exits early."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from engine.decoder.attention import Reading, attend, plan_reading
from engine.decoder.decoder import IN_TORCH, Attend, block
from engine.decoder.kv_cache import CacheShape, KVCache, Layout
from engine.decoder.weights import DecoderWeights, RowByRow, device_named
from engine.errors import Aborted
from engine.interfaces.target import Capability, Grown, Rows, Scores, Target
from engine.models.own.precision import read
from engine.platform.numpy_forward import ROWS as NUMPY_ROWS
from engine.request import ModelSpec
from engine.speculation.tree import DraftTree


@dataclass(frozen=True, slots=True)
class _SlotRows:
    """Rows of one slot inside a flattened batch."""

    slot: int
    layout: Layout
    reading: Reading

    @property
    def rows(self) -> int:
        """Rows that this sequence adds to the batch."""
        return len(self.layout.positions)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tree on its way into the batch: its rows' state [N, C], and the states below, if it is warm."""

    seat: _SlotRows
    hidden: Tensor
    states: tuple[Tensor, ...] = ()  # after each layer that the rows have passed


@dataclass(frozen=True, slots=True)
class _Joined:
    """The batch after the last layer, sequence by sequence in the order in which they joined."""

    hidden: Tensor  # [all rows, C]
    slots: list[int]
    sizes: list[int]
    states: Sequence[Tensor | None]  # [L, N, C] each, if traced


class TorchTarget(Target):
    """A target over one set of weights; it scores trees, drafts and exits early.

    Rows of all sequences run through the linear maps together; attention is per sequence, so a
    batch needs no padding and a sequence never sees its neighbours.
    """

    offers = frozenset({Capability.TREE, Capability.LAYERS})
    can_share = True
    _between = IN_TORCH

    def __init__(self, weights: DecoderWeights) -> None:
        self._weights = weights
        self.context, self.vocab = weights.arch.context, weights.arch.vocab
        self.layers, self.parameters = weights.arch.layers, weights.parameters
        device, dtype = weights.embedding.device, weights.embedding.dtype
        self._committed: dict[int, list[int]] = {}
        self._pending: dict[int, list[int]] = {}
        self._abort: Callable[[], bool] = bool
        self.cache = KVCache(
            CacheShape(
                layers=weights.arch.layers,
                kv_heads=weights.arch.kv_heads,
                head_dim=weights.arch.head_dim,
                rows=weights.arch.context,
                dtype=dtype,
                device=device,
            )
        )

    @property
    def weights(self) -> DecoderWeights:
        """What a pass reads."""
        return self._weights

    def twin(self) -> "TorchTarget":
        """Another target over the same weights, with a cache of its own."""
        return TorchTarget(self._weights)

    @override
    def abort_when(self, aborted: Callable[[], bool]) -> bool:
        """Checked before every layer."""
        self._abort = aborted
        return True

    @override
    def length(self, slot: int) -> int:
        return self.cache.length(slot)

    @override
    def pending(self, slot: int) -> int:
        return self.cache.pending(slot)

    @override
    def rows_taken(self, slot: int) -> int:
        """Rows of a slot's cache, filled or not."""
        return self.cache.taken(slot)

    @override
    def tokens(self, slot: int) -> Sequence[int]:
        return self._committed.get(slot, ())

    @override
    @torch.inference_mode()
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens: a prompt chunk. No logits are computed. An aborted call leaves the slot as it was."""
        self.crop(slot, self.length(slot))
        seat = self._place(slot, tokens, range(-1, len(tokens) - 1))
        try:
            self._span(self._embed(tokens), range(self.layers), [seat], ends=self._abort)
        except Aborted:
            self.crop(slot, self.length(slot))
        else:
            self.commit(slot, range(len(tokens)))

    @override
    @torch.inference_mode()
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Logits [N, V] of every node of each tree, after its slot's prefix.

        A tree whose first rows ran through early layers already joins at that layer.
        """
        entries = [self._enter(slot, tree) for slot, tree in zip(slots, trees, strict=True)]
        traced = any(tree.trace for tree in trees)
        found = self._join(entries, trace=traced)
        scores = zip(_split(self._logits(found.hidden), found.sizes), found.states, strict=True)
        by_slot = dict(zip(found.slots, scores, strict=True))
        return [
            Scores(by_slot[slot][0], by_slot[slot][1] if tree.trace else None)
            for slot, tree in zip(slots, trees, strict=True)
        ]

    @override
    @torch.inference_mode()
    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        """Run more rows after the uncommitted ones of several slots, in one pass."""
        by_row = self._weights.row_by_row
        if by_row is not None and sum(len(rows.tokens) for rows in batch) <= NUMPY_ROWS:
            return [self._grow_by_row(by_row, rows) for rows in batch]
        seats = [self._place(rows.slot, rows.tokens, rows.parents) for rows in batch]
        tokens = [token for rows in batch for token in rows.tokens]
        hidden = self._span(self._embed(tokens), range(self.layers), seats)
        parts = _split(hidden, [seat.rows for seat in seats])
        lasts = [p if r.last is None else p[-r.last :] for p, r in zip(parts, batch, strict=True)]
        normed = self._normed(_joined(lasts))
        sizes = [len(last) for last in lasts]
        pairs = zip(_split(self._weights.head(normed), sizes), _split(normed, sizes), strict=True)
        return [Grown(logits, state) for logits, state in pairs]

    def _grow_by_row(self, by_row: RowByRow, rows: Rows) -> Grown:
        seat = self._place(rows.slot, rows.tokens, rows.parents)
        states = by_row.rows(rows.tokens, seat.layout, self.cache, rows.slot)
        scored = states if rows.last is None else states[-rows.last :]
        logits = [by_row.logits(state) for state in scored]
        return Grown(torch.from_numpy(np.stack(logits)), torch.from_numpy(np.stack(scored)))

    @override
    @torch.inference_mode()
    def shallow(
        self, slots: Sequence[int], tokens: Sequence[int], layers: int
    ) -> tuple[Tensor, Tensor]:
        pairs = zip(slots, tokens, strict=True)
        seats = [self._place(slot, [token], [self.pending(slot) - 1]) for slot, token in pairs]
        states: list[Tensor] = []
        hidden = self._span(self._embed(tokens), range(layers), seats, states)
        return self._logits(hidden), torch.stack(states)

    @override
    @torch.inference_mode()
    def read(self, states: Tensor) -> Tensor:
        return self._logits(states)

    @override
    @torch.inference_mode()
    def commit(self, slot: int, path: Sequence[int]) -> None:
        self.cache.keep(slot, path)
        pending = self._pending.pop(slot, [])
        self._committed.setdefault(slot, []).extend(pending[node] for node in path)

    @override
    def crop(self, slot: int, length: int) -> None:
        self.cache.crop(slot, length)
        self._pending.pop(slot, None)
        del self._committed.setdefault(slot, [])[length:]

    @override
    @torch.inference_mode()
    def share(self, source: int, slot: int, length: int) -> None:
        self.take(self, source, slot, length)

    @torch.inference_mode()
    def take(self, twin: "TorchTarget", source: int, slot: int, length: int) -> None:
        """``share`` from a slot of a ``twin``."""
        self.cache.take(twin.cache, source, slot, length)
        self._pending.pop(slot, None)
        self._committed[slot] = list(twin.tokens(source)[:length])

    def _place(self, slot: int, tokens: Sequence[int], parents: Sequence[int]) -> _SlotRows:
        """Take rows in the cache for these tokens."""
        self._pending.setdefault(slot, []).extend(tokens)
        return self._seat(slot, self.cache.place(slot, parents))

    def _seat(self, slot: int, layout: Layout) -> _SlotRows:
        shape = self.cache.shape
        group = self._weights.arch.heads // shape.kv_heads
        return _SlotRows(slot, layout, plan_reading(layout, group, shape.dtype, shape.device))

    def _enter(self, slot: int, tree: DraftTree) -> "_Entry":
        """Where a tree's rows join the batch; rows that early exit has not seen catch up first."""
        if tree.warm is None:
            self.crop(slot, self.length(slot))
            return _Entry(self._place(slot, tree.tokens, tree.parents), self._embed(tree.tokens))
        known = tree.warm.states.shape[1]
        late = self._place(slot, tree.tokens[known:], tree.parents[known:])
        states: list[Tensor] = []
        self._span(self._embed(tree.tokens[known:]), range(tree.warm.layer), [late], states)
        below = torch.cat((tree.warm.states, torch.stack(states)), 1)
        return _Entry(self._seat(slot, self.cache.whole(slot)), below[-1], tuple(below))

    def _join(self, entries: Sequence["_Entry"], *, trace: bool) -> "_Joined":
        """Run all layers; sequences join the flattened batch at their entry layer."""
        order = sorted(entries, key=lambda entry: len(entry.states))
        starts = sorted({len(entry.states) for entry in order})
        seats: list[_SlotRows] = []
        above: list[Tensor] = []
        passed: list[Tensor] = []  # rows that joined at an earlier layer
        for start, stop in zip(starts, [*starts[1:], self.layers], strict=True):
            joining = [entry for entry in order if len(entry.states) == start]
            seats += [entry.seat for entry in joining]
            hidden = _joined([*passed, *(entry.hidden for entry in joining)])
            passed = [self._span(hidden, range(start, stop), seats, above if trace else None)]
        return _Joined(
            passed[0],
            slots=[seat.slot for seat in seats],
            sizes=[seat.rows for seat in seats],
            states=_traces(order, above, starts[0]) if trace else [None] * len(seats),
        )

    def _embed(self, tokens: Sequence[int]) -> Tensor:
        table = self._weights.embedding
        if len(tokens) == 1:
            found = table[tokens[0]].unsqueeze(0)  # not copied
        else:
            ids = torch.tensor(tokens, dtype=torch.int64, device=table.device)
            found = F.embedding(ids, table)
        return found.to(self._weights.computes_in)

    def _normed(self, hidden: Tensor) -> Tensor:
        """Final norm, [..., C]."""
        return self._between.norm(hidden, self._weights.norm, self._weights.arch.norm_eps)

    def _logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head, [..., C] -> [..., V]."""
        return self._weights.head(self._normed(hidden))

    def _span(
        self,
        x: Tensor,
        layers: range,
        seats: Sequence[_SlotRows],
        trace: list[Tensor] | None = None,
        ends: Callable[[], bool] = bool,
    ) -> Tensor:
        """The one primitive: rows x [n, C] of these seats through these layers.

        ``trace`` collects the state after each layer. Raises Aborted once ``ends`` says so.
        """
        positions = [position for seat in seats for position in seat.layout.positions]
        rotary = self._weights.rotary.rows(positions).to(x.device, x.dtype)
        for index in layers:
            if ends():
                raise Aborted(f"the pass was aborted before layer {index}")
            layer = self._weights.layers[index]
            attend = self._attend(index, seats)
            x = block(layer, self._weights.arch, x, rotary, attend, self._between)
            if trace is not None:
                trace.append(x)
        return x

    def _attend(self, layer: int, seats: Sequence[_SlotRows]) -> Attend:
        def mixed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if len(seats) == 1:
                return self._attend_one(layer, seats[0], (q, k, v))
            sizes = [seat.rows for seat in seats]
            parts = zip(*(torch.split(t, sizes) for t in (q, k, v)), strict=True)
            pairs = zip(seats, parts, strict=True)
            return torch.cat([self._attend_one(layer, seat, qkv) for seat, qkv in pairs])

        return mixed

    def _attend_one(
        self, layer: int, seat: _SlotRows, qkv: tuple[Tensor, Tensor, Tensor]
    ) -> Tensor:
        """Attention of one sequence's rows [n, H, D] over its cache."""
        q, *written = qkv
        keys, values = self.cache.write(seat.slot, layer, seat.layout, (written[0], written[1]))
        return attend(q.to(keys.dtype), keys, values, seat.reading).to(q.dtype)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Rows of several sequences one after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _split(rows: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    """The rows of each sequence."""
    return (rows,) if len(sizes) == 1 else torch.split(rows, sizes)


def _traces(order: Sequence[_Entry], above: Sequence[Tensor], first: int) -> list[Tensor]:
    """States after every layer for each sequence; ``above`` starts after layer ``first``."""
    found, row = [], 0
    for entry in order:
        rows = slice(row, row + entry.seat.rows)
        joined = above[len(entry.states) - first :]
        found.append(torch.stack([*entry.states, *(state[rows] for state in joined)]))
        row = rows.stop
    return found


def load(spec: ModelSpec) -> TorchTarget:
    """A target over a local Hugging Face folder; raises ModelUnusable."""
    return TorchTarget(read(spec, device_named(spec.device)))


def load_target(folder: Path, dtype: str, device: str, inflate: int = 1) -> TorchTarget:
    """A target over a folder at full precision; raises ModelUnusable.

    ``inflate`` makes every feed-forward part that many times as wide without changing the function.
    """
    return load(ModelSpec(folder.name, str(folder), device=device, dtype=dtype, inflate=inflate))
