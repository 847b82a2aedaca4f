"""The operations between the matrix products of a pass, one launch each: norm, rotation, gate.

A narrow pass is bound by launches: torch needs some twenty per layer for these few numbers. The
results equal ``rms_norm``, ``Rotary.turn`` and the gate of ``engine.decoder.decoder``, with the
same rounding.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_WARPS = 4


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension of x [..., C] with weights [C]."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    block = triton.next_power_of_2(rows.shape[1])
    _norm[(len(rows),)](
        rows, weight, out, rows.stride(0), rows.shape[1], eps,
        BLOCK=block, num_warps=_WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return out.view(x.shape)


def gated(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of [..., 2F], gate first -> [..., F]."""
    rows = gate_up.reshape(-1, gate_up.shape[-1])
    width = rows.shape[1] // 2
    out = torch.empty(len(rows), width, dtype=rows.dtype, device=rows.device)
    _gated[(len(rows), triton.cdiv(width, 1024))](
        rows, out, rows.stride(0), width, BLOCK=1024, num_warps=_WARPS, enable_fp_fusion=False
    )
    return out.view(*gate_up.shape[:-1], width)


def turned_into_cache(
    qkv: tuple[Tensor, Tensor, Tensor],
    turns: tuple[Tensor, Tensor] | None,
    cache: tuple[Tensor, Tensor],
    start: Tensor,
) -> Tensor:
    """Rotate q [n, H, D] and k [n, K, D], write k and v to the cache [K, T, D]; returns the rotated q.

    ``turns``: cosines and sines [n, 1, R] of the rows, None: no rotation. ``start``
    [1] int32: the cache row of the first of them.
    """
    (q, k, v), (keys, values) = qkv, cache
    rows, heads, width = q.shape
    kv_heads = k.shape[1]
    out = torch.empty(rows, heads, width, dtype=q.dtype, device=q.device)
    cos, sin = (q, q) if turns is None else turns
    turning = 0 if turns is None else cos.shape[-1]
    _turn[(rows, heads + 2 * kv_heads)](
        q, k, v, cos, sin, start, out, keys, values,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        keys.stride(0), keys.stride(1), values.stride(0), values.stride(1),
        HEADS=heads, KV_HEADS=kv_heads, WIDTH=width, TURNING=turning,
        BLOCK=triton.next_power_of_2(width), num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return out


@triton.jit
def _norm(x, weight, out, stride, width, eps, BLOCK: tl.constexpr):
    """One row; the sum in float32, rounded before it is weighted."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < width
    given = tl.load(x + row * stride + lane, inside, 0.0)
    value = given.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    normed = (value * scale).to(given.dtype).to(tl.float32)
    weighted = normed * tl.load(weight + lane, inside, 0.0).to(tl.float32)
    tl.store(out + row * width + lane, weighted.to(given.dtype), inside)


@triton.jit
def _gated(gate_up, out, stride, width, BLOCK: tl.constexpr):
    """A part of one row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < width
    gate = tl.load(gate_up + row * stride + lane, inside, 0.0)
    up = tl.load(gate_up + row * stride + width + lane, inside, 0.0).to(tl.float32)
    value = gate.to(tl.float32)
    passed = (value / (1.0 + tl.exp(-value))).to(gate.dtype).to(tl.float32)
    tl.store(out + row * width + lane, (passed * up).to(gate.dtype), inside)


@triton.jit
def _turn(
    q, k, v, cos, sin, start, out, keys, values,
    q_row, q_head, k_row, k_head, v_row, v_head, keys_head, keys_row, values_head, values_row,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, TURNING: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One head of one row: a query, a key or a value."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    lane = tl.arange(0, BLOCK)
    inside = lane < WIDTH
    place = tl.load(start) + row
    if head < HEADS:
        turned = _turned(q + row * q_row + head * q_head, cos, sin, row, lane, WIDTH, TURNING)
        tl.store(out + (row * HEADS + head) * WIDTH + lane, turned, inside)
    elif head < HEADS + KV_HEADS:
        own = head - HEADS
        turned = _turned(k + row * k_row + own * k_head, cos, sin, row, lane, WIDTH, TURNING)
        tl.store(keys + own * keys_head + place * keys_row + lane, turned, inside)
    else:
        own = head - HEADS - KV_HEADS
        value = tl.load(v + row * v_row + own * v_head + lane, inside, 0.0)
        tl.store(values + own * values_head + place * values_row + lane, value, inside)


@triton.jit
def _turned(given, cos, sin, row, lane, WIDTH: tl.constexpr, TURNING: tl.constexpr):
    """The first ``TURNING`` of a head's numbers rotated in halves; the sines' first half is negated."""
    value = tl.load(given + lane, lane < WIDTH, 0.0)
    if TURNING > 0:
        turning = lane < TURNING
        other = tl.load(given + (lane + TURNING // 2) % TURNING, turning, 0.0).to(tl.float32)
        by = tl.load(cos + row * TURNING + lane, turning, 0.0).to(tl.float32)
        across = tl.load(sin + row * TURNING + lane, turning, 0.0).to(tl.float32)
        first = (value.to(tl.float32) * by).to(value.dtype).to(tl.float32)
        value = tl.where(turning, (first + other * across).to(value.dtype), value)
    return value
