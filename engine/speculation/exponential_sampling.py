"""Exponential races: token i needs Exp(1) / p_i, so the first one there is a draw from p.

The next ones there are further draws without replacement.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.floating[Any]]
Tokens = NDArray[np.intp]
Speeds = NDArray[np.float64]

SHORT = 8192  # runners whose luck is drawn for all of them
RARE = 2e-5  # of all mass: tokens with less are looked at together

_STEP, _FIRST, _SECOND = (
    np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def finishers(weights: Weights, count: int, random: np.random.Generator) -> list[int]:
    """The first ``count`` tokens in order; fewer where fewer have mass, which some must have.

    ``weights`` [V] need not sum to 1. What is taken from ``random`` depends on V alone: laws that
    differ by rounding leave the same numbers to the next question.
    """
    if len(weights) <= SHORT:
        found = _first(_speeds(weights, random), count)
    else:
        found = _first_of_many(weights, count, int(random.bit_generator.random_raw()))
    tokens: list[int] = found.tolist()
    return tokens


def exponentials(key: int, tokens: Tokens) -> NDArray[np.float64]:
    """The luck of these tokens, [m] Exp(1): told by the key and the token, whoever else runs.

    Numbers ``tokens`` of the sequence SplitMix64 (Steele et al., OOPSLA 2014) that begins with the key.
    """
    words = (tokens.astype(np.uint64) + np.uint64(1)) * _STEP + np.uint64(key)
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    words ^= words >> np.uint64(31)
    shares = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # neither 0 nor 1
    times: NDArray[np.float64] = -np.log1p(-shares)
    return times


def _first(speeds: Speeds, count: int) -> Tokens:
    """Places of the largest in order, the first one of equals; none of those that stand still."""
    if count == 1:
        return np.array([speeds.argmax()])
    moving: Tokens = np.flatnonzero(speeds > 0)
    if len(moving) > count:  # to sort all of them takes eight times as long
        slowest = np.partition(speeds[moving], -count)[-count]
        moving = moving[speeds[moving] >= slowest]
    return moving[np.argsort(-speeds[moving], kind="stable")][:count]


def _speeds(weights: Weights, random: np.random.Generator) -> Speeds:
    """Inverse times of all tokens, [V]; 0 where the law has no mass."""
    times = random.standard_exponential(len(weights))
    times += 1e-300  # a time of 0 would divide, and make 0 / 0 of an impossible token
    return np.divide(weights, times, out=times)


def _keyed(weights: Weights, key: int) -> Speeds:
    return _speeds(weights, np.random.Generator(np.random.PCG64(key)))


def _first_of_many(weights: Weights, count: int, key: int) -> Tokens:
    """The same, where most tokens of a vocabulary are too rare to be looked at one by one.

    The first of all rare ones needs Exp(1) / their mass. Only where that is among the ``count``
    shortest times is it asked which one it was. A token that is rare by one rounding and not by
    another changes its own time and hardly any other.
    """
    mass = float(weights.sum(dtype=np.float64))
    head = np.flatnonzero(weights > RARE * mass)
    if not 0 < len(head) <= SHORT:
        return _first(_keyed(weights, key), count)
    known = weights[head].astype(np.float64)
    speeds = known / exponentials(key, head)
    luck = float(exponentials(key, np.array([len(weights)]))[0])  # of all rare ones
    first = _first(speeds, count)
    rare: Tokens = np.array([], dtype=np.intp)
    if len(first) < count or speeds[first[-1]] * luck < mass - known.sum():
        rare = np.flatnonzero((weights > 0) & (weights <= RARE * mass))
    if len(rare):
        late = _arriving(weights[rare], _keyed(weights, key)[rare], luck)
        first = _first(np.concatenate((speeds, late)), count)
    found: Tokens = np.concatenate((head, rare))[first]
    return found


def _arriving(weights: Weights, speeds: Speeds, luck: float) -> Speeds:
    """Speeds of the rare tokens, given that the first of them needs ``luck`` over all their mass.

    ``speeds`` of a race among them tell which one that is, and how much later the others come:
    Exp(1) / p_i again, as such times have no memory.
    """
    times = 1 / speeds
    times += luck / weights.sum(dtype=np.float64) - times.min()
    return np.divide(1, times, out=times)
