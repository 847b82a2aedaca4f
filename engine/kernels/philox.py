"""PhiloxChance: random numbers that a kernel can compute for itself, so that none travel.

Philox4x32-10 (Salmon et al., SC 2011) maps (key, counter) to four 32-bit words. Here the key is the
request's seed and the counter is (token, call): the n-th question that a request asks has its own
numbers whoever asks it. A tree's node is reached by exactly one row of questions, so a kernel knows
each node's call numbers before any node was judged, and judges all of them at once.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint32]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
SMALL = 2.0**-10  # below it -log(1 - v) is summed as a series: float32 has no digits left near 1
NEAREST = 2.0**-25  # stands for 1 - v where v was rounded to 1


def philox(key: int, tokens: Words, call: int) -> tuple[Words, Words, Words, Words]:
    """The four words of counters (token, call, 0, 0) under a 64-bit key; ten rounds."""
    first = tokens.astype(np.uint64)
    second = np.full_like(first, call & 0xFFFFFFFF)
    third, fourth = np.zeros_like(first), np.zeros_like(first)
    low, high = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        one, two = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
        first = (two >> _SHIFT) ^ second ^ np.uint64(low)
        third = (one >> _SHIFT) ^ fourth ^ np.uint64(high)
        second, fourth = two & _LOW, one & _LOW
        low, high = (low + _WEYL[0]) & 0xFFFFFFFF, (high + _WEYL[1]) & 0xFFFFFFFF
    w = [word.astype(np.uint32) for word in (first, second, third, fourth)]
    return w[0], w[1], w[2], w[3]


def exponentials(key: int, size: int, call: int) -> NDArray[np.float32]:
    """Standard exponential times of tokens 0..size-1, [size]; never 0, as small as 2**-64."""
    coarse, fine, _, _ = philox(key, np.arange(size, dtype=np.uint32), call)
    share = coarse.astype(np.float32) * np.float32(2.0**-32)
    share += (fine.astype(np.float32) + np.float32(1)) * np.float32(2.0**-64)
    series = share * (1 + share * (np.float32(0.5) + share * np.float32(1 / 3)))
    exact = -np.log(np.maximum(1 - share, np.float32(NEAREST)))
    times: NDArray[np.float32] = np.where(share < np.float32(SMALL), series, exact)
    return times.astype(np.float32)


def uniform(key: int, call: int) -> float:
    """One number in [0, 1) with 53 random bits."""
    coarse, fine, _, _ = philox(key, np.zeros(1, dtype=np.uint32), call)
    return (int(coarse[0] >> 5) * 2.0**26 + int(fine[0] >> 6)) * 2.0**-53


class PhiloxRandom:
    """Chance of one request whose numbers the torch code and the kernels both can compute.

    ``calls`` counts the questions asked so far. A verdict of the kernels moves it on by as many
    questions as the torch code would have asked.
    """

    def __init__(self, seed: int | None) -> None:
        """``seed`` 0 to 2**63 - 1; None: another one every time."""
        self.key = int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))
        if seed is not None:
            self.key = seed
        self.calls = 0

    def draw(self, law: Tensor) -> int:
        """The winner of the race p / Exp(1); the first one of equals."""
        return int(self._race(law).argmax())

    def accept(self, wanted: float, offered: float) -> bool:
        """Strict comparison, so a token without mass under the target is never accepted."""
        return uniform(self.key, self._next()) * offered < wanted

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """The first finishers of one race are sequential draws without replacement."""
        speeds = self._race(law)
        order = np.argsort(-speeds, kind="stable")[:count]
        return [int(token) for token in order if speeds[token] > 0]

    def _race(self, law: Tensor) -> NDArray[np.float32]:
        """Inverse finishing times p / Exp(1), [V]; numbers for a law on a device are made there."""
        call = self._next()
        if law.is_cuda:
            from engine.kernels.tree_walk import speeds

            found: NDArray[np.float32] = speeds(law, self.key, call).numpy(force=True)
            return found
        weights: NDArray[np.float32] = law.float().numpy()
        return np.divide(weights, exponentials(self.key, len(weights), call), dtype=np.float32)

    def _next(self) -> int:
        self.calls += 1
        return self.calls - 1
