"""The one estimator of drafting decisions: a share of counts in which old observations fade."""

from dataclasses import dataclass


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

    def __add__(self, other: "Decayed") -> "Decayed":
        """The counts of both."""
        return Decayed(self.hits + other.hits, self.trials + other.trials)
