"""How likely a node's next child is the accepted one, by what the draft itself says of it.

Sequoia's acceptance P[b] (arXiv 2402.12374, section 3.1) knows the child's rank alone. The draft's
probabilities say more: a token drawn with nine tenths of the remaining mass is nearly always
accepted, one drawn with a fiftieth about every second time. Both chances, before and after the child
is drawn, are measured at every node that verification reached, with p and q of the same context.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from engine.drafting.tuning import TUNING
from engine.statistics.decayed import Decayed


class Hint(NamedTuple):
    """What the draft says of one child, of the mass that its elder siblings left."""

    likeliest: float  # share of the likeliest token, known before the child is drawn
    own: float  # share of the token that was drawn


class AcceptanceModel:
    """Chances that a child is accepted, its elder siblings refused: before and after it is drawn."""

    def __init__(self) -> None:
        """Only the guess is known: a line, later children nearly as good."""
        self._before, self._after = self._guessed(), self._guessed()

    def before(self, rank: int, likeliest: float) -> float:
        """Of a child yet to be drawn, by the share of the likeliest token; ranks count from 0."""
        return self._at(self._before, rank, likeliest).share()

    def after(self, rank: int, own: float) -> float:
        """Of a drawn child, by its own share."""
        return self._at(self._after, rank, own).share()

    def learn(
        self, hints: Sequence[Hint], chances: Sequence[float], judged: Sequence[float]
    ) -> None:
        """One node: ``chances`` and ``judged`` by rank, as in ``RankAcceptance``."""
        for rank, hint in enumerate(hints):
            weight = judged[rank]
            if not weight > TUNING.least_judged:
                return
            memory = TUNING.model_memory**weight
            accepted = weight * min(1.0, chances[rank] / weight)
            self._at(self._before, rank, hint.likeliest).add(accepted, weight, memory)
            if rank + 1 < len(judged):
                accepted = weight * (1 - judged[rank + 1] / weight)
                self._at(self._after, rank, hint.own).add(accepted, weight, memory)

    def _guessed(self) -> list[list[Decayed]]:
        """By rank, and by probability."""
        (low, slope), weight = TUNING.model_guess, TUNING.model_guess_weight
        line = [weight * (low + slope * middle) for middle in TUNING.middles]
        return [[Decayed(hits, weight) for hits in line] for _ in range(TUNING.model_ranks)]

    def _at(self, table: list[list[Decayed]], rank: int, probability: float) -> Decayed:
        rank = min(rank, TUNING.model_ranks - 1)
        return table[rank][bisect_right(TUNING.edges, probability)]
