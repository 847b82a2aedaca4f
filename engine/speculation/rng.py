"""RandomSource: every random decision of a request goes through three methods that tests can enumerate.

Tokens are sampled by an exponential race: token i arrives after Exp(1) / p_i, and the first arrival is
a sample from p. The next arrivals are further samples without replacement.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Weights = NDArray[np.floating[Any]]
Tokens = NDArray[np.intp]
Rates = NDArray[np.float64]  # inverse arrival times p_i / Exp(1): the largest arrives first

SHORT = 8192  # up to this many tokens each one gets its own arrival time
RARE = 2e-5  # share of the mass: less likely tokens are sampled as one group

_STEP, _FIRST, _SECOND = (
    np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class RandomSource(Protocol):
    """A source of randomness; each call is independent of all calls before."""

    def draw(self, law: Tensor) -> int:
        """Sample a token from ``law`` [V] (need not be normalised, must have mass)."""
        ...

    def accept(self, wanted: float, offered: float) -> bool:
        """True with probability min(1, wanted / offered); never divides."""
        ...

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """Sample ``count`` tokens without replacement, in order; fewer if the mass runs out."""
        ...

    def mark(self) -> Any:
        """Where the source is now."""
        ...

    def rewind(self, mark: Any) -> None:
        """Go back to a mark: the numbers after it come once more."""
        ...


class SeededRandom:
    """A RandomSource over one NumPy Generator; each request owns one.

    Inverting the cumulative sum would be faster than the race, but less stable. A pass over many
    rows rounds differently from a pass over one, and a seed must still give the tokens of plain
    decoding. With pocket's float32 probabilities moved by 1e-6, the race returned another token once in
    218,000 samples, the inversion once in 3,000 to 8,000, because it moves the boundary of every
    token. Times are float64, so that rare tokens keep their probability.
    """

    def __init__(self, seed: int | None) -> None:
        self._random = np.random.Generator(np.random.PCG64(seed))

    def draw(self, law: Tensor) -> int:
        """Sample one token of [V]: the first arrival."""
        return first_arrivals(law.numpy(force=True), 1, self._random)[0]

    def accept(self, wanted: float, offered: float) -> bool:
        """Compare strictly, so that a token without target mass is never accepted."""
        return self._random.random() * offered < wanted

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """Sample without replacement: the first ``count`` arrivals of one race."""
        return first_arrivals(law.numpy(force=True), count, self._random)

    def mark(self) -> Any:
        """The generator's state."""
        return self._random.bit_generator.state

    def rewind(self, mark: Any) -> None:
        """Go back to such a state."""
        self._random.bit_generator.state = mark


def first_arrivals(weights: Weights, count: int, random: np.random.Generator) -> list[int]:
    """The first ``count`` tokens in order; fewer if fewer have mass. At least one token must have.

    ``weights`` [V] need not sum to 1. The numbers taken from ``random`` depend on V alone, so
    probabilities that differ by rounding leave the generator in the same state.
    """
    if len(weights) <= SHORT:
        found = _largest(_rates(weights, random), count)
    else:
        found = _first_of_many(weights, count, int(random.bit_generator.random_raw()))
    tokens: list[int] = found.tolist()
    return tokens


def exponentials(key: int, tokens: Tokens) -> NDArray[np.float64]:
    """Exp(1) variates [m], one per token, that depend on the key and the token only.

    They are the entries ``tokens`` of the SplitMix64 sequence (Steele et al., OOPSLA 2014) of the key.
    """
    words = (tokens.astype(np.uint64) + np.uint64(1)) * _STEP + np.uint64(key)
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    words ^= words >> np.uint64(31)
    shares = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # neither 0 nor 1
    times: NDArray[np.float64] = -np.log1p(-shares)
    return times


def _largest(rates: Rates, count: int) -> Tokens:
    """Indices of the largest positive rates in descending order; the first one on ties."""
    if count == 1:
        return np.array([rates.argmax()])
    positive: Tokens = np.flatnonzero(rates > 0)
    if len(positive) > count:  # sorting all of them takes eight times as long
        least = np.partition(rates[positive], -count)[-count]
        positive = positive[rates[positive] >= least]
    return positive[np.argsort(-rates[positive], kind="stable")][:count]


def _rates(weights: Weights, random: np.random.Generator) -> Rates:
    """The rates [V] of all tokens; 0 for tokens without mass."""
    times = random.standard_exponential(len(weights))
    times += 1e-300  # a time of 0 would divide by zero, and give 0 / 0 for an impossible token
    return np.divide(weights, times, out=times)


def _keyed_rates(weights: Weights, key: int) -> Rates:
    return _rates(weights, np.random.Generator(np.random.PCG64(key)))


def _first_of_many(weights: Weights, count: int, key: int) -> Tokens:
    """``first_arrivals`` for a large vocabulary, where most tokens are too rare to handle singly.

    The first arrival of the rare group comes after Exp(1) / mass of the group. Only if it is among
    the first ``count`` is it resolved to a token. A token that crosses the border between rare and
    common through rounding changes its own time and hardly any other.
    """
    mass = float(weights.sum(dtype=np.float64))
    head = np.flatnonzero(weights > RARE * mass)
    if not 0 < len(head) <= SHORT:
        return _largest(_keyed_rates(weights, key), count)
    common = weights[head].astype(np.float64)
    rates = common / exponentials(key, head)
    group_time = float(exponentials(key, np.array([len(weights)]))[0])  # times the group's mass
    first = _largest(rates, count)
    rare: Tokens = np.array([], dtype=np.intp)
    if len(first) < count or rates[first[-1]] * group_time < mass - common.sum():
        rare = np.flatnonzero((weights > 0) & (weights <= RARE * mass))
    if len(rare):
        late = _rare_rates(weights[rare], _keyed_rates(weights, key)[rare], group_time)
        first = _largest(np.concatenate((rates, late)), count)
    found: Tokens = np.concatenate((head, rare))[first]
    return found


def _rare_rates(weights: Weights, rates: Rates, group_time: float) -> Rates:
    """Rates of the rare tokens, given that the first arrives after ``group_time`` / their mass.

    ``rates`` come from a race of the group alone. They decide which token is first and how much
    later the others arrive: again Exp(1) / p_i, because exponential times have no memory.
    """
    times = 1 / rates
    times += group_time / weights.sum(dtype=np.float64) - times.min()
    return np.divide(1, times, out=times)
