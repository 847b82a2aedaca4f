"""Traversal verification of a sampled tree: probabilities, weights level by level, one walk.

A node's weight, and what its rejected children leave of it, depend on the tokens only and not on
random decisions: so all nodes of a level are computed at once, and the decisions come last.
``reached`` [N, 2] float64: a node's weight when it is reached, and after all children are rejected.
``scratch`` [N, 3, V] float32: two rows that alternate as p (not normalised), and q, in which a sampled
token is marked by -1. ``turn`` [N] int32: which of the two rows is current.
"""

import triton
import triton.language as tl

from engine.kernels.device_sampling import exponential, first_best, row_statistics, uniform, weights


@triton.jit
def tree_probs(
    rows, stride, scratch, reached, sound, temperature, size,
    FROM_PROBS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write every node's probabilities to its first scratch row; ``sound`` [N] int32: finite or not."""
    node = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    row = rows + node.to(tl.int64) * stride
    own = scratch + node.to(tl.int64) * 3 * size
    best = 0.0
    mass = 1.0
    if not FROM_PROBS:
        best, mass, finite = row_statistics(row, size, temperature, BLOCK)
        tl.store(sound + node, finite.to(tl.int32))
    for start in range(0, size, BLOCK):
        at = start + lane
        p = weights(row, at, at < size, best, mass, temperature, FROM_PROBS)
        tl.store(own + at, p, at < size)
    if node == 0:
        tl.store(reached, tl.full((), 1.0, tl.float64))


@triton.jit(do_not_specialize=["first"])
def reject_level(
    q, q_stride, meta, order, first, scratch, turn, reached, size,
    REPLACED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For every node of a level: the weights of its children, and p and q after rejecting them."""
    node = tl.load(order + first + tl.program_id(0))
    lane = tl.arange(0, BLOCK)
    rest = scratch + node.to(tl.int64) * 3 * size
    other = rest + size
    offer = rest + 2 * size
    child = tl.load(meta + node * 5 + 1)
    weight = tl.load(reached + node * 2)
    q_row = q + tl.maximum(tl.load(meta + node * 5 + 4), 0).to(tl.int64) * q_stride
    drawn_from = tl.where(child >= 0, size, 0)
    for start in range(0, drawn_from, BLOCK):
        at = start + lane
        tl.store(offer + at, tl.load(q_row + at, at < size, 0.0).to(tl.float32), at < size)
    left = 1.0  # divisor of p
    total = 1.0  # divisor of q; 0: uniform over tokens not sampled yet
    share = 0.0  # of each token if q is uniform
    turned = 0
    while child >= 0:
        trial = tl.load(meta + child * 5)
        tl.debug_barrier()
        one = trial + tl.arange(0, 1)
        wanted, offered = _current(rest, offer, one, size, (left, total, share))
        wanted = weight * tl.sum(wanted, 0).to(tl.float64)
        _reach(reached, child, wanted, tl.sum(offered, 0).to(tl.float64))
        fresh_mass = 0.0
        offer_mass = 0.0
        undrawn = 0.0
        for start in range(0, size, BLOCK):
            at = start + lane
            p, o = _current(rest, offer, at, size, (left, total, share))
            fresh = tl.maximum(weight.to(tl.float32) * p - o, 0.0)
            fresh_mass += tl.sum(fresh, 0)
            tl.store(other + at, fresh, at < size)
            raw = tl.load(offer + at, at < size, -1.0)
            if not REPLACED:
                raw = tl.where(at == trial, -1.0, raw)
            tl.debug_barrier()
            tl.store(offer + at, raw, at < size)
            offer_mass += tl.sum(tl.maximum(raw, 0.0), 0)
            undrawn += tl.sum((raw >= 0.0).to(tl.float32), 0)
        if fresh_mass > 0.0:
            spare = rest
            rest = other
            other = spare
            left = fresh_mass
            turned = 1 - turned
        mass = fresh_mass.to(tl.float64)
        whole = tl.maximum(mass + 1.0 - weight, 1e-300)  # 0 if a node of weight 1 has no mass left
        weight = tl.where(weight < 1.0, mass / whole, weight)
        if not REPLACED:
            total = offer_mass
            share = 1.0 / tl.maximum(undrawn, 1.0)
        child = tl.load(meta + child * 5 + 2)
    tl.store(turn + node, turned)
    tl.store(reached + node * 2 + 1, weight)


@triton.jit(do_not_specialize=["key", "call", "nodes"])
def traversal_walk(
    meta, order, scratch, turn, reached, sound, out, key, call, nodes, size, BLOCK: tl.constexpr,
):  # fmt: skip
    """Decide the nodes in ``order``, leaves first; the first that is kept ends the path.

    ``out``: length of the path, bonus token, finite or not, random calls, the path. One program.
    """
    lane = tl.arange(0, BLOCK)
    last = -1
    asked = 0
    finite = 1
    for place in range(0, nodes):
        node = tl.load(order + place)
        finite &= tl.load(sound + node)
        weight = tl.load(reached + node * 2 + 1)
        asks = (last < 0) & (node > 0) & (tl.load(reached + node * 2) > 0.0)
        kept = asks & (uniform(key, call + asked) < weight)
        asked += asks.to(tl.int32)
        last = tl.where(kept | ((last < 0) & (node == 0)), node, last)
    own = scratch + (last.to(tl.int64) * 3 + tl.load(turn + last)) * size
    best = tl.full((BLOCK,), -1.0, tl.float32)
    token = lane
    for start in range(0, size, BLOCK):
        at = start + lane
        p = tl.load(own + at, at < size, 0.0)
        speed = tl.where(at < size, p / exponential(key, at, call + asked), -1.0)
        token = tl.where(speed > best, at, token)
        best = tl.maximum(best, speed)
    chosen, _top = first_best(best, token)
    length = 0
    node = last
    while node >= 0:
        length += 1
        node = tl.load(meta + node * 5 + 3)
    tl.store(out, length)
    tl.store(out + 1, chosen)
    tl.store(out + 2, finite)
    tl.store(out + 3, asked + 1)
    node = last
    while node >= 0:
        length -= 1
        tl.store(out + 4 + length, node)
        node = tl.load(meta + node * 5 + 3)


@triton.jit
def _reach(reached, child, wanted, offered):
    """Store min(1, wanted / offered), and 0 for impossible tokens."""
    whole = wanted >= offered
    share = tl.where(whole, 1.0, wanted / tl.where(whole, 1.0, offered))
    tl.store(reached + child * 2, tl.where(wanted > 0.0, share, 0.0))


@triton.jit
def _current(rest, offer, at, size, scales):
    """The current p and q, both normalised; outside the row both are 0."""
    left, total, share = scales
    inside = at < size
    p = tl.load(rest + at, inside, 0.0) / left
    raw = tl.load(offer + at, inside, -1.0)
    drawn = tl.maximum(raw, 0.0) / tl.where(total > 0.0, total, 1.0)
    flat = tl.where(raw >= 0.0, share, 0.0)
    return p, tl.where(total > 0.0, drawn, flat)
