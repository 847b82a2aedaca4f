"""Acceptance by depth from evaluated tokens only: one request's, with that of all requests as prior."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.draft_length.tuning import TUNING
from engine.statistics.decayed import Decayed


@dataclass
class DepthAcceptance:
    """Accepted tokens over evaluated ones at depths 1, 2, ..."""

    memory: float  # weight of the past per evaluated token
    counts: list[Decayed] = field(default_factory=list)

    def note(self, accepted: int, *, refused: bool) -> None:
        """One walk: the depths that it evaluated learn, the counts of deeper ones fade."""
        evaluated = accepted + refused
        while len(self.counts) < evaluated:
            self.counts.append(Decayed())
        for depth, counts in enumerate(self.counts, 1):
            if depth <= evaluated:
                counts.add(depth <= accepted, memory=self.memory)
            else:
                counts.fade(self.memory)

    def at(self, depth: int) -> Decayed:
        """Counts at a depth, 0 first; empty where nothing was evaluated."""
        return self.counts[depth] if depth < len(self.counts) else Decayed()


def pooled(pool: DepthAcceptance, count: int) -> list[float]:
    """Acceptance of all requests at depths 1..count; an unknown depth is like the one before it."""
    found, guess = [], TUNING.guess
    for depth in range(count):
        known = pool.at(depth)
        weight = TUNING.guess_weight * TUNING.guess_fade**known.trials
        guess = known.share(guess, weight)
        found.append(min(guess, TUNING.max_acceptance))
    return found


def shrunk(own: DepthAcceptance, pool: Sequence[float]) -> list[float]:
    """One request's acceptance at the depths of ``pool``, with the pool's as prior.

    Few tokens say little, and the best of many noisy estimates looks better than it is. What the
    request's shallower depths did better or worse than the pool, its deeper ones are expected to do.
    """
    found, difference = [], 0.0
    for depth, usual in enumerate(pool):
        rate = min(max(usual + difference, 0.0), TUNING.max_acceptance)
        if depth < len(own.counts):
            rate = own.counts[depth].share(rate, TUNING.pool_weight)
        difference = rate - usual
        found.append(min(rate, TUNING.max_acceptance))
    return found
