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
from functools import cache
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.decoder.kv_cache import BLOCK, Layout

QUADS = 4  # the query rows of a call are filled up to a multiple of this


@dataclass(frozen=True, slots=True)
class Move:
    """Uncommitted rows that go where a call reads them; all moves' rows are copied at once."""

    to: slice  # of the cache's rows
    rows: slice  # of those that all calls move


@dataclass(frozen=True, slots=True)
class Call:
    """Rows of one path that read the same blocks of keys."""

    rows: slice  # of the new rows in the order of the calls
    keys: int
    mask: Tensor  # [M, keys] additive: M query rows, a row's group of heads together
    move: Move | None  # what the calls before it left elsewhere


@dataclass(frozen=True, slots=True)
class Reading:
    """How the new rows of one slot read its cache, in every layer."""

    layout: Layout
    calls: tuple[Call, ...]
    moved: Tensor | None  # [m] what calls move, of the uncommitted rows; None: all stand right
    order: Tensor | None  # [n] the new rows in the order of the calls; None: as they stand
    back: Tensor | None  # and the other way round


def plan_reading(layout: Layout, group: int, dtype: torch.dtype, device: torch.device) -> Reading:
    """How ``layout``'s rows read; ``group``: query heads of one key/value head."""
    calls: list[Call] = []
    masks: dict[tuple[tuple[int, ...], int], Tensor] = {}  # leaves of one depth read alike
    order, moved, standing = list[int](), list[int](), list(range(layout.end - layout.length))
    for path, rows in _paths(layout):
        for blocks, part in groupby(rows, key=lambda row: layout.positions[row] // BLOCK):
            own = list(part)
            positions, keys = tuple(layout.positions[row] for row in own), (blocks + 1) * BLOCK
            if (positions, keys) not in masks:
                masks[positions, keys] = _mask(positions, keys, group).to(device, dtype)
            seen = path[: positions[-1] + 1 - layout.length]
            move = _move(layout.length, standing, seen, moved)
            place = slice(len(order), len(order) + len(own))
            calls.append(Call(place, keys, masks[positions, keys], move))
            order += own
    rows_moved = torch.tensor(moved, device=device) if moved else None
    if order == sorted(order):
        return Reading(layout, tuple(calls), rows_moved, None, None)
    there = torch.tensor(order, device=device)
    return Reading(layout, tuple(calls), rows_moved, there, there.argsort())


def attend(q: Tensor, keys: Tensor, values: Tensor, reading: Reading) -> Tensor:
    """Rows q [n, H, D] over the whole cache [K, T, D] of their slot: [n, H, D]."""
    rows, heads, width = q.shape
    queries = q.view(rows, keys.shape[0], -1, width).transpose(0, 1)
    if reading.order is not None:
        queries = queries.index_select(1, reading.order)
    parts = _parts(queries, keys.unsqueeze(0), values.unsqueeze(0), reading)
    mixed = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    if reading.back is not None:
        mixed = mixed.index_select(1, reading.back)
    return mixed.transpose(0, 1).reshape(rows, heads, width)


def _parts(queries: Tensor, keys: Tensor, values: Tensor, reading: Reading) -> list[Tensor]:
    """What each call gives; rows of the cache are moved to where it reads them, and back at the end."""
    if reading.moved is None:
        return [_called(queries, keys, values, call) for call in reading.calls]
    stores, here = (keys, values), slice(reading.layout.length, reading.layout.end)
    held = [store[:, :, here].clone() for store in stores]
    moved = [rows.index_select(2, reading.moved) for rows in held]
    parts = []
    for call in reading.calls:
        if call.move is not None:
            for store, rows in zip(stores, moved, strict=True):
                store[:, :, call.move.to] = rows[:, :, call.move.rows]
        parts.append(_called(queries, keys, values, call))
    for store, rows in zip(stores, held, strict=True):
        store[:, :, here] = rows
    return parts


def _called(queries: Tensor, keys: Tensor, values: Tensor, call: Call) -> Tensor:
    """Rows of the queries [K, n, G, D], G of a group of heads, over [1, K, T, D]: [K, m, G, D]."""
    own = queries[:, call.rows]
    filled = own.reshape(1, own.shape[0], -1, own.shape[-1])
    many = filled.shape[2]
    if missing := call.mask.shape[0] - many:
        filled = F.pad(filled, (0, 0, 0, missing))
    mixed = F.scaled_dot_product_attention(
        filled, keys[:, :, : call.keys], values[:, :, : call.keys], attn_mask=call.mask
    )
    return mixed[0, :, :many].view(own.shape)


def _move(length: int, standing: list[int], path: tuple[int, ...], moved: list[int]) -> Move | None:
    """What brings ``path`` right after the prefix.

    ``standing`` says which row is where, and ``moved`` which were moved so far; both are kept up.
    """
    first = next((at for at, row in enumerate(path) if standing[at] != row), None)
    if first is None:
        return None
    standing[first : len(path)] = path[first:]
    moved += path[first:]
    rows = slice(len(moved) - len(path) + first, len(moved))
    return Move(slice(length + first, length + len(path)), rows)


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
    hidden = _hidden()[[position % BLOCK for position in positions]]
    mask[:rows, keys - BLOCK :] = hidden.repeat_interleave(group, 0)
    return mask


@cache
def _hidden() -> Tensor:
    """[BLOCK, BLOCK]: what the rows of a block do not see of it."""
    return torch.full((BLOCK, BLOCK), float("-inf")).triu(1)
