"""Attention of new rows over a slot's cache: a row gets the same bits in every pass.

A drafted answer equals plain's only if a row's result depends on what the row sees, and on nothing
else of the pass. torch's attention keeps to that if it is called in one way (measured for float32 and
bfloat16 on processors with AVX2 and with AMX):

- the query heads of a group are rows of one key/value head, and their number is a multiple of four:
  torch takes them 32 at a time, and fewer than four go to other kernels. Keys and values are read once
  and not once for each head;
- a row reads keys in whole blocks of 64, up to the block of its own position, masked after that: the
  number of keys decides how torch splits the sum;
- keys stand in the order of positions. Rows of a branch, whose ancestors are not the rows right before
  them, find these moved there while they read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.kv_cache import BLOCK, Layout

QUADS = 4  # the query rows of a call are filled up to a multiple of this


@dataclass(frozen=True, slots=True)
class Call:
    """Rows of one path that read the same blocks of keys."""

    rows: tuple[int, ...]  # of the pass's new rows
    path: tuple[int, ...]  # the uncommitted rows that they see, the oldest first
    keys: int
    mask: Tensor  # [M, keys] additive: M query rows, a row's group of heads together


@dataclass(frozen=True, slots=True)
class Reading:
    """How the new rows of one slot read its cache, in every layer."""

    layout: Layout
    calls: tuple[Call, ...]

    @property
    def moves(self) -> bool:
        """Whether some rows see others than the uncommitted ones right before them."""
        return any(call.path != tuple(range(len(call.path))) for call in self.calls)

    @property
    def in_order(self) -> bool:
        """Whether the calls' rows together are the new rows as they stand."""
        rows = [row for call in self.calls for row in call.rows]
        return rows == list(range(len(rows)))


def plan_reading(layout: Layout, group: int, dtype: torch.dtype, device: torch.device) -> Reading:
    """How ``layout``'s rows read; ``group``: query heads of one key/value head."""
    calls = []
    for path, rows in _paths(layout):
        for blocks, part in groupby(rows, key=lambda row: layout.positions[row] // BLOCK):
            own = tuple(part)
            keys = (blocks + 1) * BLOCK
            mask = _mask([layout.positions[row] for row in own], keys, group)
            seen = path[: layout.positions[own[-1]] + 1 - layout.length]
            calls.append(Call(own, seen, keys, mask.to(device, dtype)))
    return Reading(layout, tuple(calls))


def attend(q: Tensor, keys: Tensor, values: Tensor, reading: Reading) -> Tensor:
    """Rows q [n, H, D] over the whole cache [K, T, D] of their slot: [n, H, D]."""
    if not reading.moves:
        parts = [_called(q, keys, values, call) for call in reading.calls]
        return _gathered(parts, reading)
    start, end = reading.layout.length, reading.layout.end
    here = keys[:, start:end].clone(), values[:, start:end].clone()
    parts = []
    for call in reading.calls:
        for store, held in zip((keys, values), here, strict=True):
            store[:, start : start + len(call.path)] = held[:, call.path]
        parts.append(_called(q, keys, values, call))
    keys[:, start:end], values[:, start:end] = here
    return _gathered(parts, reading)


def _called(q: Tensor, keys: Tensor, values: Tensor, call: Call) -> Tensor:
    """The rows [m, H, D] of one call."""
    (_, heads, width), shared = q.shape, keys.shape[0]
    rows, group = len(call.rows), heads // shared
    own = q if rows == len(q) else q[list(call.rows)]
    queries = own.view(rows, shared, group, width).transpose(0, 1).reshape(1, shared, -1, width)
    missing = len(call.mask) - rows * group
    if missing:
        queries = F.pad(queries, (0, 0, 0, missing))
    mixed = F.scaled_dot_product_attention(
        queries,
        keys[:, : call.keys].unsqueeze(0),
        values[:, : call.keys].unsqueeze(0),
        attn_mask=call.mask,
    )[0, :, : rows * group]
    return mixed.view(shared, rows, group, width).transpose(0, 1).reshape(rows, heads, width)


def _gathered(parts: Sequence[Tensor], reading: Reading) -> Tensor:
    """The rows of all calls, as they stand in the pass."""
    if len(parts) == 1:
        return parts[0]
    joined = torch.cat(list(parts))
    if reading.in_order:
        return joined
    found = torch.empty_like(joined)
    found[[row for call in reading.calls for row in call.rows]] = joined
    return found


def _paths(layout: Layout) -> list[tuple[tuple[int, ...], list[int]]]:
    """Paths of uncommitted rows that together hold each new row once: (path, its new rows)."""
    first = layout.start - layout.length  # of the new rows, counted from the oldest uncommitted one
    parents = {_parent(bits) for bits in layout.seen}
    found, known = [], set[int]()
    for row, bits in enumerate(layout.seen, first):
        if row not in parents:
            path = _ancestors(bits)
            fresh = [each for each in path if each >= first and each not in known]
            known.update(fresh)
            found.append((path, [each - first for each in fresh]))
    return found


def _parent(bits: int) -> int:
    """The row before the last one of a path; -1: the prefix."""
    return (bits ^ 1 << (bits.bit_length() - 1)).bit_length() - 1


def _ancestors(bits: int) -> tuple[int, ...]:
    return tuple(row for row in range(bits.bit_length()) if bits >> row & 1)


def _mask(positions: Sequence[int], keys: int, group: int) -> Tensor:
    """[n * group filled up, keys]: 0 up to a row's position, -inf after it; added rows see all."""
    rows = len(positions) * group
    mask = torch.zeros(rows + -rows % QUADS, keys)
    last = torch.arange(keys - BLOCK, keys) > torch.tensor(positions).unsqueeze(1)
    hidden = last.repeat_interleave(group, 0)
    mask[: len(hidden), keys - BLOCK :].masked_fill_(hidden, float("-inf"))
    return mask
