"""Every random decision of a request, behind three methods that tests can enumerate."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Chance(Protocol):
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


class SeededChance:
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
        """The winner of the race: argmax of p / Exp(1) follows p."""
        return int(self._race(law).argmax())

    def accept(self, wanted: float, offered: float) -> bool:
        """Strict comparison, so a token without mass under the target is never accepted."""
        return self._random.random() * offered < wanted

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """The first finishers of the same race are sequential draws without replacement."""
        speeds = torch.from_numpy(self._race(law))
        first = speeds.topk(min(count, len(speeds)))
        finished = int(first.values.count_nonzero())
        tokens: list[int] = first.indices[:finished].tolist()
        return tokens

    def _race(self, law: Tensor) -> NDArray[np.float64]:
        """Inverse finishing times p / Exp(1), [V]; 0 where the law has no mass."""
        times = self._random.standard_exponential(len(law))
        times += 1e-300  # a time of 0 would divide, and make 0 / 0 of an impossible token
        speeds: NDArray[np.float64] = np.divide(law.numpy(force=True), times, out=times)
        return speeds
