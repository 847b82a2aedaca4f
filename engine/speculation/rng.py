"""Every random decision of a request, behind three methods that tests can enumerate."""

from typing import Protocol

import numpy as np
from torch import Tensor

from engine.speculation.exponential_sampling import finishers


class RandomSource(Protocol):
    """Source of randomness; independent of everything it was asked before."""

    def draw(self, law: Tensor) -> int:
        """A token of ``law`` [V] (need not be normalised, must have mass)."""
        ...

    def accept(self, wanted: float, offered: float) -> bool:
        """True with probability min(1, wanted / offered); never divides."""
        ...

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """``count`` tokens in draw order, without replacement; fewer when the mass runs out."""
        ...


class SeededRandom:
    """Chance over one NumPy Generator; a request owns exactly one.

    Tokens are drawn by an exponential race and not by inverting the cumulative sum, which would be
    faster. A pass over many rows rounds differently from a pass over one, and a seeded answer shall
    still be plain decoding's: where that moved pocket's float32 laws by 1e-6, the race gave another
    token once in 218,000 draws, inversion once in 3,000 to 8,000, as every token's boundary moves.
    Times are float64, so that rare tokens keep their odds.
    """

    def __init__(self, seed: int | None) -> None:
        self._random = np.random.Generator(np.random.PCG64(seed))

    def draw(self, law: Tensor) -> int:
        """The winner of the race: who needs Exp(1) / p and is first follows p."""
        return finishers(law.numpy(force=True), 1, self._random)[0]

    def accept(self, wanted: float, offered: float) -> bool:
        """Strict comparison, so a token without mass under the target is never accepted."""
        return self._random.random() * offered < wanted

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """The first finishers of the same race are sequential draws without replacement."""
        return finishers(law.numpy(force=True), count, self._random)
