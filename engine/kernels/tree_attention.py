"""Attention of a draft tree over a long prefix and over its own ancestors, one launch.

Equals ``F.scaled_dot_product_attention`` with the mask of ``engine.speculation.tree``, without the
matrix: a row sees the whole prefix, and the tree rows whose bit is set. Length and row count are
read on the device, so one CUDA graph serves a growing conversation.

A program holds the rows of one key head's group and reads one part of the cached tokens; the last
part to arrive adds up the parts (split along the tokens, because a tree has few rows).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _TOKENS = 16, 64  # of a tile; 16 is the minimum of a matrix unit
_PARTS = 16


def tree_attention(q: Tensor, keys: Tensor, values: Tensor, bits: Tensor, extent: Tensor) -> Tensor:
    """q [n, H, D] over keys, values [K, T, D] -> [n, H, D]; D a power of two, 16 or more.

    ``bits`` [n, W] int32: bit c of a row is set if it sees cache row ``length`` + c.
    ``extent`` [2] int32: length of the prefix, and the end of the rows that exist.
    """
    q = q.contiguous()  # ``out`` gets the same strides, which the kernel assumes
    rows, heads, width = q.shape
    groups = heads // keys.shape[0]
    tiles = triton.cdiv(rows * groups, _ROWS)
    shape = (keys.shape[0], tiles, _PARTS, _ROWS)
    parts = torch.empty(*shape, width, dtype=torch.float32, device=q.device)
    scales = torch.empty(*shape, 2, dtype=torch.float32, device=q.device)
    tickets = torch.zeros(keys.shape[0], tiles, dtype=torch.int32, device=q.device)
    out = torch.empty_like(q)
    _attend[(keys.shape[0], tiles, _PARTS)](
        q, keys, values, bits, extent, out, parts, scales, tickets,
        q.stride(0), q.stride(1), keys.stride(0), keys.stride(1), values.stride(0),
        values.stride(1), rows, bits.shape[1], width**-0.5,
        GROUPS=groups, WIDTH=width, ROWS=_ROWS, TOKENS=_TOKENS, PARTS=_PARTS,
        enable_fp_fusion=True,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _attend(
    q, keys, values, bits, extent, out, parts, scales, tickets,
    q_row, q_head, k_head, k_row, v_head, v_row, rows, words, scale,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """One tile of rows of one key head over one part of the tokens."""
    head = tl.program_id(0)
    tile = tl.program_id(1)
    part = tl.program_id(2)
    lane = tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    flat = tile * ROWS + lane
    row = flat // GROUPS
    inside = row < rows
    place = row * q_row + (head * GROUPS + flat % GROUPS) * q_head
    query = tl.load(q + place[:, None] + width[None, :], inside[:, None], 0.0)
    length = tl.load(extent)
    end = tl.load(extent + 1)
    size = tl.cdiv(tl.cdiv(end, PARTS), TOKENS) * TOKENS
    first = part * size
    high = tl.full((ROWS,), float("-inf"), tl.float32)
    mass = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(first, tl.minimum(first + size, end), TOKENS):
        token = start + tl.arange(0, TOKENS)
        exists = token < end
        seen = _seen(bits, words, row, inside, token, length) & exists[None, :]
        k = tl.load(
            keys + head * k_head + token[None, :] * k_row + width[:, None], exists[None, :], 0.0
        )
        score = tl.dot(query, k, input_precision="ieee") * scale
        score = tl.where(seen, score, float("-inf"))
        top = tl.maximum(high, tl.max(score, 1))
        safe = tl.where(top == float("-inf"), 0.0, top)
        weight = tl.exp(score - safe[:, None])
        fade = tl.exp(high - safe)
        v = tl.load(
            values + head * v_head + token[:, None] * v_row + width[None, :], exists[:, None], 0.0
        )
        mixed = mixed * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        mass = mass * fade + tl.sum(weight, 1)
        high = top
    tiles = tl.num_programs(1)
    own = (head * tiles + tile) * PARTS
    tl.store(parts + ((own + part) * ROWS + lane)[:, None] * WIDTH + width[None, :], mixed)
    tl.store(scales + ((own + part) * ROWS + lane) * 2, high)
    tl.store(scales + ((own + part) * ROWS + lane) * 2 + 1, mass)
    tl.debug_barrier()
    if tl.atomic_add(tickets + head * tiles + tile, 1) == PARTS - 1:
        result = _added_up(parts, scales, own, WIDTH, ROWS, PARTS)
        tl.store(
            out + place[:, None] + width[None, :], result.to(out.dtype.element_ty), inside[:, None]
        )


@triton.jit
def _seen(bits, words, row, inside, token, length):
    """Which tokens each row sees: the prefix, and the tree rows whose bit is set."""
    spot = tl.maximum(token - length, 0)
    word = tl.load(
        bits + row[:, None] * words + (spot // 32)[None, :],
        inside[:, None] & ((token >= length) & (spot < words * 32))[None, :],
        0,
    )
    return (((word >> (spot % 32)[None, :]) & 1) != 0) | (token < length)[None, :]


@triton.jit
def _added_up(
    parts, scales, own, WIDTH: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """The sum of all parts of one tile, [ROWS, WIDTH]; bypasses the L1 cache."""
    lane = tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    high = tl.full((ROWS,), float("-inf"), tl.float32)
    mass = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for other in range(0, PARTS):
        at = (own + other) * ROWS + lane
        theirs = tl.load(scales + at * 2, cache_modifier=".cg")
        top = tl.maximum(high, theirs)
        safe = tl.where(top == float("-inf"), 0.0, top)
        fade = tl.exp(high - safe)
        share = tl.exp(theirs - safe)
        piece = tl.load(parts + at[:, None] * WIDTH + width[None, :], cache_modifier=".cg")
        mixed = mixed * fade[:, None] + piece * share[:, None]
        mass = mass * fade + tl.load(scales + at * 2 + 1, cache_modifier=".cg") * share
        high = top
    return mixed / tl.where(mass > 0.0, mass, 1.0)[:, None]
