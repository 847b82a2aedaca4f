"""The torch target: own decoder over own cache; scores trees, grows drafts, exits early."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decode.tree import DraftTree
from engine.errors import ModelUnusable
from engine.models.decoder import Attend, block, rms_norm
from engine.models.kvcache import CacheShape, KVCache, Layout
from engine.models.weights import DecoderWeights, load_weights
from engine.protocols import Capability, Scores


@dataclass(frozen=True, slots=True)
class _Seat:
    """Rows of one slot inside a flattened batch."""

    slot: int
    layout: Layout

    @property
    def rows(self) -> int:
        """Rows that this sequence adds to the batch."""
        return len(self.layout.positions)


class TorchTarget:
    """Target, DraftModel and LayeredTarget over one set of weights.

    Rows of all sequences run through the linear maps together; attention is per sequence, so a
    batch needs no padding and a sequence never sees its neighbours.
    """

    offers = frozenset({Capability.TREE, Capability.LAYERS})

    def __init__(self, weights: DecoderWeights) -> None:
        self._weights = weights
        self.context, self.vocab = weights.arch.context, weights.arch.vocab
        self.layers, self.parameters = weights.arch.layers, weights.parameters
        self.cache = KVCache(
            CacheShape(
                layers=weights.arch.layers,
                kv_heads=weights.arch.kv_heads,
                head_dim=weights.arch.head_dim,
                rows=weights.arch.context,
                dtype=weights.embedding.dtype,
                device=weights.embedding.device,
            )
        )

    def length(self, slot: int) -> int:
        """Committed tokens whose keys are cached."""
        return self.cache.length(slot)

    def pending(self, slot: int) -> int:
        """Uncommitted rows."""
        return self.cache.pending(slot)

    @torch.inference_mode()
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens unjudged: a prompt chunk. No logits are computed."""
        self.crop(slot, self.length(slot))
        layout = self.cache.place(slot, range(-1, len(tokens) - 1))
        self._span(self._embed(tokens), range(self.layers), [_Seat(slot, layout)])
        self.cache.keep(slot, range(len(tokens)))

    @torch.inference_mode()
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Logits [N, V] of every node of each tree, hung behind its slot's prefix.

        A tree whose first rows ran through early layers already joins at that layer.
        """
        entries: dict[int, list[tuple[_Seat, Tensor]]] = {}
        for slot, tree in zip(slots, trees, strict=True):
            layer, seat, hidden = self._enter(slot, tree)
            entries.setdefault(layer, []).append((seat, hidden))
        seats, hidden = self._join(entries)
        logits = torch.split(self._logits(hidden), [seat.rows for seat in seats])
        by_slot = {seat.slot: Scores(rows) for seat, rows in zip(seats, logits, strict=True)}
        return [by_slot[slot] for slot in slots]

    @torch.inference_mode()
    def grow(self, slot: int, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Score more rows behind the uncommitted ones, logits [n, V]."""
        layout = self.cache.place(slot, parents)
        hidden = self._span(self._embed(tokens), range(self.layers), [_Seat(slot, layout)])
        return self._logits(hidden)

    @torch.inference_mode()
    def shallow(self, slot: int, token: int, layers: int) -> tuple[Tensor, Tensor]:
        """Append one row to a chain and run the first ``layers``: (logits [V], hidden [1, C])."""
        layout = self.cache.place(slot, [self.pending(slot) - 1])
        hidden = self._span(self._embed([token]), range(layers), [_Seat(slot, layout)])
        return self._logits(hidden)[0], hidden

    @torch.inference_mode()
    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Keep these uncommitted rows as prefix, forget the others."""
        self.cache.keep(slot, path)

    def crop(self, slot: int, length: int) -> None:
        """Forget uncommitted rows and everything behind the first ``length`` tokens."""
        self.cache.crop(slot, length)

    def _enter(self, slot: int, tree: DraftTree) -> tuple[int, _Seat, Tensor]:
        """(layer to join at, seat of all rows, their state there [N, C])."""
        if tree.warm is None:
            self.crop(slot, self.length(slot))
            seat = _Seat(slot, self.cache.place(slot, tree.parents))
            return 0, seat, self._embed(tree.tokens)
        known = len(tree.warm.hidden)
        late = self.cache.place(slot, tree.parents[known:])
        fresh = self._embed(tree.tokens[known:])
        fresh = self._span(fresh, range(tree.warm.layer), [_Seat(slot, late)])
        seat = _Seat(slot, self.cache.whole(slot))
        return tree.warm.layer, seat, torch.cat((tree.warm.hidden, fresh))

    def _join(self, entries: dict[int, list[tuple[_Seat, Tensor]]]) -> tuple[list[_Seat], Tensor]:
        """Run all layers; sequences join the flattened batch at their entry layer."""
        starts = sorted(entries)
        seats: list[_Seat] = []
        hidden = self._embed(())
        for start, stop in zip(starts, [*starts[1:], self.layers], strict=True):
            seats += [seat for seat, _ in entries[start]]
            hidden = torch.cat([hidden, *(state for _, state in entries[start])])
            hidden = self._span(hidden, range(start, stop), seats)
        return seats, hidden

    def _embed(self, tokens: Sequence[int]) -> Tensor:
        table = self._weights.embedding
        return F.embedding(torch.tensor(tokens, dtype=torch.int64, device=table.device), table)

    def _logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head, [n, C] -> [n, V]."""
        weights = self._weights
        return weights.head(rms_norm(hidden, weights.norm, weights.arch.norm_eps))

    def _span(self, x: Tensor, layers: range, seats: Sequence[_Seat]) -> Tensor:
        """The one primitive: rows x [n, C] of these seats through these layers."""
        positions = torch.cat([seat.layout.positions for seat in seats])
        rotary = self._weights.rotary.at(positions).to(x.device, x.dtype)
        for index in layers:
            layer = self._weights.layers[index]
            x = block(layer, self._weights.arch, x, rotary, self._attend(index, seats))
        return x

    def _attend(self, layer: int, seats: Sequence[_Seat]) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if len(seats) == 1:
                return self._attend_one(layer, seats[0], (q, k, v))
            sizes = [seat.rows for seat in seats]
            parts = zip(*(torch.split(t, sizes) for t in (q, k, v)), strict=True)
            pairs = zip(seats, parts, strict=True)
            return torch.cat([self._attend_one(layer, seat, qkv) for seat, qkv in pairs])

        return attend

    def _attend_one(self, layer: int, seat: _Seat, qkv: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Attention of one sequence's rows [n, H, D] over its cache."""
        keys, values = self.cache.write(seat.slot, layer, seat.layout, qkv[1:])
        mixed = F.scaled_dot_product_attention(
            qkv[0].transpose(0, 1).unsqueeze(0),
            keys.unsqueeze(0),
            values.unsqueeze(0),
            attn_mask=seat.layout.mask,
            enable_gqa=True,
        )
        return mixed[0].transpose(0, 1)


def load_target(folder: Path, dtype: str, device: str) -> TorchTarget:
    """A target over a local Hugging Face folder; raises ModelUnusable."""
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype not in kinds:
        raise ModelUnusable(f"dtype {dtype!r} is not supported; choose {' or '.join(kinds)}")
    if device != "cpu" and not torch.cuda.is_available():
        raise ModelUnusable(f"device {device!r} was asked for, but torch finds no CUDA device")
    return TorchTarget(load_weights(folder, kinds[dtype], torch.device(device)))
