"""Acceptance by rank as it was measured: what the shapes of drawn trees are made for."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

WIDTH = 32  # ranks that are told apart: the widest fan-out
LIFTED, LIFT_FORGETTING = 16.0, 0.998  # children that a lift of 1 counts for; weight of the past


@dataclass
class RankEvidence:
    """Chance by rank, averaged over nodes; ``keep`` below 1 forgets."""

    hits: NDArray[np.float64] = field(default_factory=lambda: np.zeros(WIDTH))
    trials: NDArray[np.float64] = field(default_factory=lambda: np.zeros(WIDTH))
    keep: float = 1.0

    def add(self, chances: NDArray[np.float64]) -> None:
        """Measured nodes [M, K]; NaN where a rank was not judged."""
        for row in chances[:, :WIDTH]:
            known = np.flatnonzero(~np.isnan(row))
            self.hits[known] = self.keep * self.hits[known] + row[known]
            self.trials[known] = self.keep * self.trials[known] + 1

    @property
    def shares(self) -> NDArray[np.float64]:
        """The averages, at most 1 in all: what is too much goes from the last ranks, which few nodes
        have measured. Ranks without a trial are 0.
        """
        found = self.hits / np.maximum(self.trials, 1e-9)
        return np.diff(np.minimum(found.cumsum(), 1.0), prepend=0.0)


@dataclass
class Lift:
    """Children that verification kept, over those that it would keep if it went token by token.

    Acceptance by rank says how often a child is kept for its own sake. Leaves-first verification
    also keeps it for the sake of what stands below, which one number describes well: with pocket
    1.07 times at temperature 1. Without it the trees that seem best are too shallow.
    """

    kept: float = LIFTED
    expected: float = LIFTED

    def add(self, kept: float, expected: float) -> None:
        """One round's path."""
        self.kept = LIFT_FORGETTING * self.kept + kept
        self.expected = LIFT_FORGETTING * self.expected + expected

    def over(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Shares by rank as they come about, at most 1 in all."""
        factor = max(1.0, self.kept / max(self.expected, 1e-9))
        return shares * min(factor, 1 / max(float(shares.sum()), 1e-9))
