"""Block verification of a sampled chain in two launches: row statistics, then all decisions.

Every pi of the chain depends on the rows before it, so the statistics come first. Then each program
computes the few pi that it needs, and the number of random calls before its own.
"""

import triton
import triton.language as tl

from engine.kernels.device_sampling import exponential, first_best, row_statistics, uniform, weights


@triton.jit(do_not_specialize=["nodes"])
def chain_statistics(
    rows, stride, q, q_stride, meta, laws, temperature, nodes, size,
    FROM_PROBS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``laws`` [N, 5] float32: largest logit, mass, finite or not, p and q of the next token."""
    node = tl.program_id(0)
    row = rows + node.to(tl.int64) * stride
    best = 0.0
    mass = 1.0
    sound = 1.0
    if not FROM_PROBS:
        best, mass, finite = row_statistics(row, size, temperature, BLOCK)
        sound = finite.to(tl.float32)
    wanted = 0.0
    offered = 0.0
    if node + 1 < nodes:
        lane = tl.load(meta + (node + 1) * 5) + tl.arange(0, 1)
        inside = lane < size
        wanted = tl.sum(weights(row, lane, inside, best, mass, temperature, FROM_PROBS), 0)
        drawn = q + tl.load(meta + node * 5 + 4).to(tl.int64) * q_stride
        offered = tl.sum(tl.load(drawn + lane, inside, 0.0), 0)
    tl.store(laws + node * 5, best)
    tl.store(laws + node * 5 + 1, mass)
    tl.store(laws + node * 5 + 2, sound)
    tl.store(laws + node * 5 + 3, wanted)
    tl.store(laws + node * 5 + 4, offered)


@triton.jit(do_not_specialize=["key", "call", "nodes"])
def chain_walk(
    rows, stride, q, q_stride, meta, laws, judged, out, ticket, key, call, temperature, nodes, size,
    FROM_PROBS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Decide every node and sample its next token; the deepest node that is kept wins."""
    node = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    kept, deeper = _kept(laws, node, nodes)
    drawn_at = deeper + tl.where(node == 0, 0, 1)
    row = rows + node.to(tl.int64) * stride
    best = tl.load(laws + node * 5)
    mass = tl.load(laws + node * 5 + 1)
    inner = node + 1 < nodes
    drawn = q + tl.maximum(tl.load(meta + node * 5 + 4), 0).to(tl.int64) * q_stride
    drawn_from = tl.where(inner, size, 0)
    scale = tl.where(inner, kept, 1.0).to(tl.float32)
    excess = 0.0
    new_best = tl.full((BLOCK,), -1.0, tl.float32)
    old_best = tl.full((BLOCK,), -1.0, tl.float32)
    new_token = lane
    old_token = lane
    for start in range(0, size, BLOCK):
        at = start + lane
        p = scale * weights(row, at, at < size, best, mass, temperature, FROM_PROBS)
        o = tl.load(drawn + at, at < drawn_from, 0.0)
        fresh = tl.maximum(p - o, 0.0)
        excess += tl.sum(fresh, 0)
        time = exponential(key, at, call + drawn_at)
        new_speed = tl.where(at < size, fresh / time, -1.0)
        old_speed = tl.where(at < size, p / time, -1.0)
        new_token = tl.where(new_speed > new_best, at, new_token)
        old_token = tl.where(old_speed > old_best, at, old_token)
        new_best = tl.maximum(new_best, new_speed)
        old_best = tl.maximum(old_best, old_speed)
    new_chosen, _new = first_best(new_best, new_token)
    old_chosen, _old = first_best(old_best, old_token)
    over = excess.to(tl.float64)
    limit = tl.where(inner, over + 1.0 - kept, 1.0)
    wanted = tl.where(inner, over, kept)
    passes = (uniform(key, call + deeper) * limit < wanted) & (kept > 0.0)
    passes = passes | (node == 0)
    tl.store(judged + node * 3, passes.to(tl.int32))
    tl.store(judged + node * 3 + 1, tl.where(excess > 0.0, new_chosen, old_chosen))
    tl.store(judged + node * 3 + 2, drawn_at + 1)
    _deepest(judged, laws, out, nodes, ticket)


@triton.jit
def _kept(laws, node, nodes):
    """pi of ``node`` in float64, and how many deeper nodes are decided before it."""
    reach = tl.full((), 1.0, tl.float64)
    own = reach
    deeper = 0
    for step in range(1, nodes):
        share = reach * tl.load(laws + (step - 1) * 5 + 3).to(tl.float64)
        offered = tl.load(laws + (step - 1) * 5 + 4).to(tl.float64)
        whole = share >= offered
        reach = tl.where(whole, 1.0, share / tl.where(whole, 1.0, offered))
        own = tl.where(step == node, reach, own)
        deeper += ((step > node) & (reach > 0.0)).to(tl.int32)
    return own, deeper


@triton.jit
def _deepest(judged, laws, out, nodes, ticket):
    """The last program to arrive writes the verdict; see device_sampling.walk."""
    tl.debug_barrier()
    arrived = tl.atomic_add(ticket, 1)
    if arrived == nodes - 1:
        last = 0
        finite = 1
        for node in range(0, nodes):
            last = tl.where(tl.load(judged + node * 3, cache_modifier=".cg") > 0, node, last)
            finite &= (tl.load(laws + node * 5 + 2) > 0.0).to(tl.int32)
        tl.store(out, last + 1)
        tl.store(out + 1, tl.load(judged + last * 3 + 1, cache_modifier=".cg"))
        tl.store(out + 2, finite)
        tl.store(out + 3, tl.load(judged + last * 3 + 2, cache_modifier=".cg"))
        for node in range(0, last + 1):
            tl.store(out + 4 + node, node)
        tl.store(ticket, 0)
