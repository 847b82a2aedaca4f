"""The three one-launch verification kernels: one program per node, the last one walks.

``meta`` [N, 5] int32: token, first child, next sibling, call number of the node's first question,
row of the law that its children were drawn from (-1: none). See ``kernels.verify`` for the host.
"""

import triton
import triton.language as tl
from torch import Tensor, empty, float32

from engine.kernels.race import (
    child_with,
    exponential,
    first_best,
    row_statistics,
    settle,
    uniform,
    walk,
    weights,
)


@triton.jit
def greedy_walk(logits, stride, meta, judged, out, ticket, nodes, size, BLOCK: tl.constexpr):
    """Every node's largest logit; of equals the first."""
    node = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    row = logits + node.to(tl.int64) * stride
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    token = lane
    bad = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, size, BLOCK):
        at = start + lane
        x = tl.load(row + at, at < size, float("-inf")).to(tl.float32)
        bad |= ((x != x) | (x == float("inf"))).to(tl.int32)
        token = tl.where(x > best, at, token)
        best = tl.maximum(best, x)
    chosen, top = first_best(best, token)
    finite = (tl.max(bad, 0) == 0) & (top > float("-inf"))
    settle(judged, node, child_with(meta, node, chosen), chosen, finite.to(tl.int32))
    walk(judged, out, nodes, ticket, EVERY=True)


@triton.jit(do_not_specialize=["key", "call"])
def lookup_walk(
    rows, stride, meta, judged, out, ticket, key, call, temperature, nodes, size,
    FROM_LAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every node's own draw from the target's law; the walk follows the child that carries it."""
    node = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    row = rows + node.to(tl.int64) * stride
    best, mass, finite = _statistics(row, size, temperature, FROM_LAW, BLOCK)
    question = call + tl.load(meta + node * 5 + 3)
    fastest = tl.full((BLOCK,), -1.0, tl.float32)
    token = lane
    for start in range(0, size, BLOCK):
        at = start + lane
        p = weights(row, at, at < size, best, mass, temperature, FROM_LAW)
        speed = tl.where(at < size, p / exponential(key, at, question), -1.0)
        token = tl.where(speed > fastest, at, token)
        fastest = tl.maximum(fastest, speed)
    chosen, _top = first_best(fastest, token)
    settle(judged, node, child_with(meta, node, chosen), chosen, finite.to(tl.int32))
    walk(judged, out, nodes, ticket, EVERY=False)


@triton.jit(do_not_specialize=["key", "call"])
def descend_walk(
    rows, stride, q, q_stride, scratch, meta, judged, out, ticket, key, call, temperature, nodes, size,
    REPLACED: tl.constexpr, FROM_LAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Every node tries its drawn children in draw order, then draws from what they left.

    ``scratch`` [N, 3, V] float32: two rows that take turns as residual (not normalised; ``left`` is
    its mass) and the offer, in which a token that was drawn is marked by -1.
    """
    node = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    row = rows + node.to(tl.int64) * stride
    best, mass, finite = _statistics(row, size, temperature, FROM_LAW, BLOCK)
    rest = scratch + node.to(tl.int64) * 3 * size
    other = rest + size
    offer = rest + 2 * size
    child = tl.load(meta + node * 5 + 1)
    question = call + tl.load(meta + node * 5 + 3)
    has_children = child >= 0
    drawn_from = tl.where(has_children, size, 0)  # tokens of the offer that there are
    q_row = q + tl.maximum(tl.load(meta + node * 5 + 4), 0).to(tl.int64) * q_stride
    trial = tl.load(meta + tl.maximum(child, 0) * 5)
    wanted = 0.0
    offered = 0.0
    for start in range(0, size, BLOCK):
        at = start + lane
        p = weights(row, at, at < size, best, mass, temperature, FROM_LAW)
        o = tl.load(q_row + at, at < drawn_from, 0.0).to(tl.float32)
        tl.store(rest + at, p, at < size)
        tl.store(offer + at, o, at < size)
        wanted += tl.sum(tl.where(at == trial, p, 0.0), 0)
        offered += tl.sum(tl.where(at == trial, o, 0.0), 0)
    left = 1.0  # divides the residual
    total = 1.0  # divides the offer; 0: uniform over what was not drawn yet
    share = 0.0  # of each token of the uniform offer
    accepted = -1
    while (child >= 0) & (accepted < 0):
        if uniform(key, question) * offered.to(tl.float64) < wanted.to(tl.float64):
            accepted = child
        question += 1
        child = tl.load(meta + child * 5 + 2)
        if (child >= 0) & (accepted < 0):
            drawn = trial
            trial = tl.load(meta + child * 5)
            kept_mass = 0.0
            offer_mass = 0.0
            undrawn = 0.0
            raw_new = 0.0
            raw_old = 0.0
            raw_offer = 0.0
            tl.debug_barrier()
            for start in range(0, size, BLOCK):
                at = start + lane
                p, o = _standing(rest, offer, at, size, (left, total, share))
                fresh = tl.maximum(p - tl.maximum(o, 0.0), 0.0)
                kept_mass += tl.sum(fresh, 0)
                tl.store(other + at, fresh, at < size)
                raw = tl.load(offer + at, at < size, -1.0)
                if not REPLACED:
                    raw = tl.where(at == drawn, -1.0, raw)
                    tl.store(offer + at, raw, at < size)
                offer_mass += tl.sum(tl.maximum(raw, 0.0), 0)
                undrawn += tl.sum((raw >= 0.0).to(tl.float32), 0)
                raw_new += tl.sum(tl.where(at == trial, fresh, 0.0), 0)
                raw_old += tl.sum(tl.where(at == trial, p, 0.0), 0)
                raw_offer += tl.sum(tl.where(at == trial, raw, 0.0), 0)
            if kept_mass > 0.0:
                spare = rest
                rest = other
                other = spare
                left = kept_mass
                wanted = raw_new / kept_mass
            else:
                wanted = raw_old
            if not REPLACED:
                total = offer_mass
                share = 1.0 / tl.maximum(undrawn, 1.0)
                offered = tl.where(
                    offer_mass > 0.0,
                    tl.maximum(raw_offer, 0.0) / tl.where(offer_mass > 0.0, offer_mass, 1.0),
                    tl.where(raw_offer >= 0.0, share, 0.0),
                )
            else:
                offered = raw_offer
    new_best = tl.full((BLOCK,), -1.0, tl.float32)
    old_best = tl.full((BLOCK,), -1.0, tl.float32)
    new_token = lane
    old_token = lane
    mass_left = 0.0
    tl.debug_barrier()
    for start in range(0, size, BLOCK):
        at = start + lane
        p, o = _standing(rest, offer, at, size, (left, total, share))
        fresh = tl.maximum(p - tl.where(has_children, o, 0.0), 0.0)
        mass_left += tl.sum(fresh, 0)
        time = exponential(key, at, question)
        new_speed = tl.where(at < size, fresh / time, -1.0)
        old_speed = tl.where(at < size, p / time, -1.0)
        new_token = tl.where(new_speed > new_best, at, new_token)
        old_token = tl.where(old_speed > old_best, at, old_token)
        new_best = tl.maximum(new_best, new_speed)
        old_best = tl.maximum(old_best, old_speed)
    new_chosen, _new = first_best(new_best, new_token)
    old_chosen, _old = first_best(old_best, old_token)
    bonus = tl.where(mass_left > 0.0, new_chosen, old_chosen)
    settle(judged, node, accepted, bonus, finite.to(tl.int32))
    walk(judged, out, nodes, ticket, EVERY=False)


@triton.jit
def _statistics(row, size, temperature, FROM_LAW: tl.constexpr, BLOCK: tl.constexpr):
    """What ``weights`` needs to know of a row; nothing where the law is finished."""
    if FROM_LAW:
        best = 0.0
        mass = 1.0
        finite = tl.program_id(0) >= 0
    else:
        best, mass, finite = row_statistics(row, size, temperature, BLOCK)
    return best, mass, finite


@triton.jit
def _standing(rest, offer, at, size, scales):
    """Residual and offer as they stand, both normalised; outside the row both are 0."""
    left, total, share = scales
    inside = at < size
    p = tl.load(rest + at, inside, 0.0) / left
    raw = tl.load(offer + at, inside, -1.0)
    drawn = tl.maximum(raw, 0.0) / tl.where(total > 0.0, total, 1.0)
    flat = tl.where(raw >= 0.0, share, 0.0)
    return p, tl.where(total > 0.0, drawn, flat)


def speeds(law: Tensor, key: int, call: int) -> Tensor:
    """p / Exp(1) of every token of ``law`` [V], float32 on its device; the twin of PhiloxChance's race."""
    found = empty(len(law), dtype=float32, device=law.device)
    _speeds[(triton.cdiv(len(law), 1024),)](
        law.contiguous(), found, key, call, len(law), BLOCK=1024
    )
    return found


@triton.jit(do_not_specialize=["key", "call"])
def _speeds(law, found, key, call, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(law + at, at < size, 0.0).to(tl.float32)
    tl.store(found + at, p / exponential(key, at, call), at < size)
