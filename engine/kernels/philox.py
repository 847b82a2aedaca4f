"""PhiloxRandom: random numbers that the host and the kernels compute independently.

Philox4x32-10 (Salmon et al., SC 2011) maps (key, counter) to four 32-bit words. Here the key is the
request's seed and the counter is (token, call), where call counts the random decisions of the request.
A node of a tree is reached after a fixed number of calls, so a kernel knows each node's call numbers
in advance and can verify all nodes at once.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint32]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
SMALL = 2.0**-10  # below it -log(1 - v) is summed as a series: float32 has no digits left near 1
NEAREST = 2.0**-25  # replaces 1 - v where v was rounded to 1


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
    """A RandomSource of one request whose numbers torch code and kernels both can compute.

    ``calls`` counts the random decisions so far. A verdict of the kernels adds as many as the torch
    code would have used.
    """

    def __init__(self, seed: int | None) -> None:
        """``seed`` 0 to 2**63 - 1; None: a random one."""
        self.key = int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))
        if seed is not None:
            self.key = seed
        self.calls = 0

    def draw(self, law: Tensor) -> int:
        """Sample one token of [V]: the largest p / Exp(1), the first one on ties."""
        return int(self._rates(law).argmax())

    def accept(self, wanted: float, offered: float) -> bool:
        """Compare strictly, so that a token without target mass is never accepted."""
        return uniform(self.key, self._next()) * offered < wanted

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """Sample without replacement: the ``count`` largest p / Exp(1)."""
        rates = self._rates(law)
        order = np.argsort(-rates, kind="stable")[:count]
        return [int(token) for token in order if rates[token] > 0]

    def mark(self) -> int:
        """How many decisions there were."""
        return self.calls

    def rewind(self, mark: int) -> None:
        """Go back to that many."""
        self.calls = mark

    def _rates(self, law: Tensor) -> NDArray[np.float32]:
        """p / Exp(1) of every token, [V]; computed on the device of ``law``."""
        call = self._next()
        if law.is_cuda:
            from engine.kernels.tree_walk import rates

            found: NDArray[np.float32] = rates(law, self.key, call).numpy(force=True)
            return found
        weights: NDArray[np.float32] = law.float().numpy()
        return np.divide(weights, exponentials(self.key, len(weights), call), dtype=np.float32)

    def _next(self) -> int:
        self.calls += 1
        return self.calls - 1
