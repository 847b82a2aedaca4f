"""Acceptance by depth from evaluated tokens only: one request's, leaning on that of all requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field

OPTIMISM = 0.8  # acceptance where nothing is known: the first rounds find out
OPTIMISM_WEIGHT = 2.0  # evaluated tokens that optimism counts for
DOUBT = 0.8  # factor by which each evaluated token shrinks that weight
POOL_WEIGHT = 12.0  # evaluated tokens that the other requests' acceptance counts for in one request
MEMORY, POOL_MEMORY = 0.965, 0.995  # weight of the past per evaluated token
CERTAIN = 0.99  # acceptance is never taken for granted


@dataclass
class DecayedCounts:
    """A ratio of faded counts."""

    hits: float = 0.0
    trials: float = 0.0

    def add(self, hit: float, memory: float) -> None:
        """One more trial."""
        self.fade(memory)
        self.trials += 1
        self.hits += hit

    def fade(self, memory: float) -> None:
        """Time passed without a trial."""
        self.trials *= memory
        self.hits *= memory


@dataclass
class DepthAcceptance:
    """Tokens evaluated and accepted at depths 1, 2, ..."""

    memory: float
    counts: list[DecayedCounts] = field(default_factory=list)

    def note(self, accepted: int, *, refused: bool) -> None:
        """One walk: depths that it evaluated learn, what is known of deeper ones grows stale."""
        evaluated = accepted + refused
        while len(self.counts) < evaluated:
            self.counts.append(DecayedCounts())
        for at, depth in enumerate(self.counts, 1):
            if at <= evaluated:
                depth.add(at <= accepted, self.memory)
            else:
                depth.fade(self.memory)

    def at(self, depth: int) -> DecayedCounts:
        """Counts at a depth, 0 first; empty where nothing was seen."""
        return self.counts[depth] if depth < len(self.counts) else DecayedCounts()


def pooled(pool: DepthAcceptance, count: int) -> list[float]:
    """Acceptance of all requests at depths 1..count; an unknown depth is like the one before."""
    found, guess = [], OPTIMISM
    for depth in range(count):
        known = pool.at(depth)
        weight = OPTIMISM_WEIGHT * DOUBT**known.trials
        guess = (weight * guess + known.hits) / (weight + known.trials)
        found.append(min(guess, CERTAIN))
    return found


def shrunk(own: DepthAcceptance, pool: Sequence[float]) -> list[float]:
    """One request's acceptance at the pool's depths.

    A few tokens say little, and of many noisy estimates the best looks better than it is: each
    leans on the pool's. What a request's shallower depths did better or worse than the pool, its
    deeper ones are expected to do too.
    """
    found, luck, seen = [], 0.0, own.counts
    for depth, usual in enumerate(pool):
        rate = min(max(usual + luck, 0.0), CERTAIN)
        if depth < len(seen):
            known = seen[depth]
            rate = (POOL_WEIGHT * rate + known.hits) / (POOL_WEIGHT + known.trials)
        luck = rate - usual
        found.append(min(rate, CERTAIN))
    return found
