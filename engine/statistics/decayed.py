"""Estimators of drafting decisions: shares of counts in which old observations fade, and speedups.

A speedup is how many times as fast as plain decoding tokens came, on this machine at this time.
"""

from dataclasses import dataclass, replace
from math import inf

from engine.request import Prior
from engine.statistics.tuning import TUNING


@dataclass(slots=True)
class Decayed:
    """``hits`` over ``trials``; each new observation multiplies the older ones by a memory below 1.

    What hits and trials are is up to the user: accepted and evaluated tokens, tokens and plain
    passes, seconds and tokens.
    """

    hits: float = 0.0
    trials: float = 0.0

    def add(self, hits: float, trials: float = 1.0, memory: float = 1.0) -> None:
        """One observation; ``memory`` is the weight of those before it."""
        self.hits = memory * self.hits + hits
        self.trials = memory * self.trials + trials

    def fade(self, memory: float) -> None:
        """Time passed without an observation."""
        self.hits *= memory
        self.trials *= memory

    def share(self, prior: float = 0.0, weight: float = 0.0) -> float:
        """The share, with a prior that counts for ``weight`` trials; the prior if nothing is known."""
        trials = self.trials + weight
        return (self.hits + weight * prior) / trials if trials else prior


@dataclass(slots=True)
class Speedup(Decayed):
    """``hits`` are tokens, ``trials`` the plain passes that their seconds would have paid for."""

    rounds: int = 0

    @property
    def value(self) -> float:
        """Tokens per plain pass; 1, as plain decoding, before anything was measured."""
        return self.share(1.0)

    def count(self, tokens: float, passes: float, memory: float = 1.0) -> None:
        """One round; ``memory`` is the weight of those before it."""
        self.add(tokens, passes, memory)
        self.rounds += 1

    def with_prior(self, value: float, passes: float) -> "Speedup":
        """The same with a prior that counts for ``passes`` plain passes."""
        return replace(self, hits=self.hits + value * passes, trials=self.trials + passes)


def speedup_from_prior(prior: Prior | None, highest: float = inf) -> Speedup | None:
    """What earlier sessions measured, limited in value and weight; None if they measured nothing."""
    if prior is None or prior.pace is None or prior.pace_weight <= 0:
        return None
    weight = min(TUNING.prior_weight, prior.pace_weight)
    value = min(prior.pace, highest)
    return Speedup(weight * value, weight, max(1, round(prior.pace_weight)))
