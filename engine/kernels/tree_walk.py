"""Verification of chosen candidates in one launch: one program per node, the last one walks the tree.

``meta`` [N, 5] int32: token, first child, next sibling, the node's first random call (in a sampled
tree: its parent), row of the distribution that its children were sampled from (-1: none).
engine.kernels.verify is the host side.
"""

import triton
import triton.language as tl
from torch import Tensor, empty, float32

from engine.kernels.device_sampling import (
    child_with,
    exponential,
    first_best,
    row_statistics,
    settle,
    walk,
    weights,
)


@triton.jit(do_not_specialize=["key", "call", "nodes"])
def lookup_walk(
    rows, stride, meta, judged, out, ticket, key, call, temperature, nodes, size,
    FROM_PROBS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sample a token of the target at every node; the walk follows the children with these tokens."""
    node = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    row = rows + node.to(tl.int64) * stride
    best, mass, finite = _statistics(row, size, temperature, FROM_PROBS, BLOCK)
    question = call + tl.load(meta + node * 5 + 3)
    fastest = tl.full((BLOCK,), -1.0, tl.float32)
    token = lane
    for start in range(0, size, BLOCK):
        at = start + lane
        p = weights(row, at, at < size, best, mass, temperature, FROM_PROBS)
        speed = tl.where(at < size, p / exponential(key, at, question), -1.0)
        token = tl.where(speed > fastest, at, token)
        fastest = tl.maximum(fastest, speed)
    chosen, _top = first_best(fastest, token)
    settle(judged, node, child_with(meta, node, chosen), chosen, finite.to(tl.int32))
    walk(judged, out, nodes, ticket)


@triton.jit
def _statistics(row, size, temperature, FROM_PROBS: tl.constexpr, BLOCK: tl.constexpr):
    """The statistics that ``weights`` needs; constants if the row holds probabilities."""
    if FROM_PROBS:
        best = 0.0
        mass = 1.0
        finite = tl.program_id(0) >= 0
    else:
        best, mass, finite = row_statistics(row, size, temperature, BLOCK)
    return best, mass, finite


def rates(law: Tensor, key: int, call: int) -> Tensor:
    """p / Exp(1) of every token of ``law`` [V], float32 on its device; as in PhiloxRandom."""
    found = empty(len(law), dtype=float32, device=law.device)
    _rates[(triton.cdiv(len(law), 1024),)](
        law.contiguous(), found, key, call, len(law), BLOCK=1024, enable_fp_fusion=False
    )
    return found


@triton.jit(do_not_specialize=["key", "call"])
def _rates(law, found, key, call, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(law + at, at < size, 0.0).to(tl.float32)
    tl.store(found + at, p / exponential(key, at, call), at < size)
