"""Device code that the verification kernels share: random numbers, sampling, the tree walk."""

import triton
import triton.language as tl

SMALL = tl.constexpr(2.0**-10)
NEAREST = tl.constexpr(2.0**-25)
WORD = tl.constexpr(2.0**-32)
PAIR = tl.constexpr(2.0**-64)
NEVER = tl.constexpr(2**31 - 1)


@triton.jit
def exponential(key, tokens, call):
    """Standard exponential times of ``tokens``; as in philox.exponentials."""
    zero = tokens * 0
    coarse, fine, _a, _b = tl.philox(key, tokens, zero + call, zero, zero)
    share = coarse.to(tl.float32) * WORD
    share += (fine.to(tl.float32) + 1.0) * PAIR
    series = share * (1.0 + share * (0.5 + share * (1.0 / 3.0)))
    exact = -tl.log(tl.maximum(1.0 - share, NEAREST))
    return tl.where(share < SMALL, series, exact)


@triton.jit
def uniform(key, call):
    """One float64 in [0, 1); as in philox.uniform."""
    lane = tl.arange(0, 1)
    coarse, fine, _a, _b = tl.philox(key, lane, lane + call, lane, lane)
    bits = (coarse >> 5).to(tl.float64) * 67108864.0 + (fine >> 6).to(tl.float64)
    return tl.sum(bits * (1.0 / 9007199254740992.0), 0)


@triton.jit
def first_best(best, tokens):
    """The smallest token among the lanes whose value is the largest, and that value."""
    top = tl.max(best, 0)
    return tl.min(tl.where(best == top, tokens, NEVER), 0), top


@triton.jit
def row_statistics(logits, size, temperature, BLOCK: tl.constexpr):
    """Largest logit of a row, sum of exp((logit - largest) / T), and whether the row is finite."""
    lane = tl.arange(0, BLOCK)
    high = tl.full((BLOCK,), float("-inf"), tl.float32)
    bad = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, size, BLOCK):
        x = tl.load(logits + start + lane, start + lane < size, float("-inf")).to(tl.float32)
        bad |= ((x != x) | (x == float("inf"))).to(tl.int32)
        high = tl.maximum(high, x)
    best = tl.max(high, 0)
    finite = (tl.max(bad, 0) == 0) & (best > float("-inf"))
    mass = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        x = tl.load(logits + start + lane, start + lane < size, float("-inf")).to(tl.float32)
        mass += tl.exp((x - best) / temperature)
    return best, tl.sum(mass, 0), finite


@triton.jit
def weights(row, at, mask, best, mass, temperature, FROM_PROBS: tl.constexpr):
    """Probabilities of the tokens ``at`` of one row, which holds logits or probabilities."""
    if FROM_PROBS:
        return tl.load(row + at, mask, 0.0).to(tl.float32)
    else:
        x = tl.load(row + at, mask, float("-inf")).to(tl.float32)
        return tl.exp((x - best) / temperature) / mass


@triton.jit
def child_with(meta, node, token):
    """The first child of ``node`` with ``token``, or -1."""
    child = tl.load(meta + node * 5 + 1)
    found = -1
    while child >= 0:
        if (found < 0) & (tl.load(meta + child * 5) == token):
            found = child
        child = tl.load(meta + child * 5 + 2)
    return found


@triton.jit
def walk(judged, out, nodes, ticket):
    """The last program to arrive walks down from the root and writes the verdict.

    ``finite`` is 0 if a node of the path is not finite.
    ``judged`` [N, 3]: accepted child or -1, the token sampled if the walk ends here, finite or not.
    ``out``: length of the path, bonus token, finite or not, (unused), the path.
    """
    tl.debug_barrier()
    arrived = tl.atomic_add(ticket, 1)
    if arrived == nodes - 1:
        node = 0
        length = 0
        finite = 1
        while node >= 0:
            tl.store(out + 4 + length, node)
            length += 1
            finite &= tl.load(judged + node * 3 + 2, cache_modifier=".cg")
            tl.store(out + 1, tl.load(judged + node * 3 + 1, cache_modifier=".cg"))
            node = tl.load(judged + node * 3, cache_modifier=".cg")
        tl.store(out, length)
        tl.store(out + 2, finite)
        tl.store(ticket, 0)


@triton.jit
def settle(judged, node, child, token, finite):
    """Store one node's result."""
    tl.store(judged + node * 3, child)
    tl.store(judged + node * 3 + 1, token)
    tl.store(judged + node * 3 + 2, finite)
