"""Odds: how likely a node's next child is the one that is kept, by what the draft itself says of it.

Sequoia's acceptance P[b] (arXiv 2402.12374, section 3.1) knows the child's rank alone. A draft's own
law says more: a token that it drew with nine tenths of what was left is kept nearly always, one that
it drew with a fiftieth about every second time. Both chances are measured, like P[b], at every node
that a walk has reached, with p and q of the same context.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995)
MIDDLES = (0.01, 0.035, 0.075, 0.15, 0.27, 0.42, 0.57, 0.72, 0.85, 0.93, 0.965, 0.99, 1.0)
RANKS = 3  # that are told apart: first, second, later children
PRIOR_WEIGHT = 4.0  # nodes that the first guess counts for
FORGETTING = 0.997  # weight of the past per measured node
UNLIKELY = 1e-3  # a child that is judged more rarely teaches nothing


class Hint(NamedTuple):
    """What the draft says of one child, of the mass that its elder siblings left."""

    likeliest: float  # share of the likeliest token, known before the child is drawn
    own: float  # share of the token that was drawn


@dataclass
class _Shares:
    """Averages by rank and by a probability under the draft."""

    hits: list[list[float]]
    trials: list[list[float]]

    @classmethod
    def guessed(cls, low: float, slope: float) -> "_Shares":
        """What is believed before anything was measured: a line, later children nearly as good."""
        line = [PRIOR_WEIGHT * (low + slope * middle) for middle in MIDDLES]
        trials = [PRIOR_WEIGHT] * len(MIDDLES)
        return cls([list(line) for _ in range(RANKS)], [list(trials) for _ in range(RANKS)])

    def at(self, rank: int, probability: float) -> float:
        """The average; ranks count from 0."""
        rank, bucket = min(rank, RANKS - 1), bisect_right(EDGES, probability)
        return self.hits[rank][bucket] / self.trials[rank][bucket]

    def add(self, rank: int, probability: float, share: float, weight: float) -> None:
        """A chance that was measured, of a child that is judged in ``weight`` of all cases."""
        rank, bucket = min(rank, RANKS - 1), bisect_right(EDGES, probability)
        hits, trials = self.hits[rank], self.trials[rank]
        keep = FORGETTING**weight
        hits[bucket] = keep * hits[bucket] + weight * share
        trials[bucket] = keep * trials[bucket] + weight


@dataclass
class AcceptanceModel:
    """Chances that a child is kept, its elder siblings refused: before and after it is drawn."""

    _before: _Shares = field(default_factory=lambda: _Shares.guessed(0.3, 0.6))
    _after: _Shares = field(default_factory=lambda: _Shares.guessed(0.3, 0.6))

    def before(self, rank: int, likeliest: float) -> float:
        """Of a child yet to be drawn, by the share of the likeliest token."""
        return self._before.at(rank, likeliest)

    def after(self, rank: int, own: float) -> float:
        """Of a drawn child, by its own share."""
        return self._after.at(rank, own)

    def learn(
        self, hints: Sequence[Hint], chances: Sequence[float], judged: Sequence[float]
    ) -> None:
        """One node: ``chances`` and ``judged`` by rank, as ``engine.drafting.rank_acceptance`` finds them."""
        for rank, hint in enumerate(hints):
            weight = judged[rank]
            if not weight > UNLIKELY:
                return
            self._before.add(rank, hint.likeliest, min(1.0, chances[rank] / weight), weight)
            if rank + 1 < len(judged):
                self._after.add(rank, hint.own, 1 - judged[rank + 1] / weight, weight)
