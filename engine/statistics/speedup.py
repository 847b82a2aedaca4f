"""Pace: how fast tokens came, in plain passes; 1 is plain decoding on the same machine at the same time.

Luck: how much of what was expected came. Origins: how much was copied.
"""

import math
from dataclasses import dataclass, replace

from engine.request import Prior

SLOW = 0.995  # what is left per round of what a session measured
EVIDENCE = 10.0  # tokens that a drafter's estimates are believed for: copies fail in bursts
SLOWEST = 0.7  # times plain decoding, that earlier sessions are believed
EARLIER = 15.0  # most plain passes that what they measured counts for
FASTEST = 4.0  # times plain decoding, that earlier sessions are believed
LENGTH_RATE = 0.1  # of the newest round in the length of a usual one


@dataclass
class Speedup:
    """Tokens over the plain passes whose seconds they took, both faded."""

    tokens: float = 0.0
    passes: float = 0.0
    rounds: int = 0
    length: float = 1.0  # plain passes that a round took lately

    @property
    def value(self) -> float:
        """The pace itself; plain's before anything was measured."""
        return self.tokens / self.passes if self.passes else 1.0

    @property
    def lost(self) -> float:
        """Plain passes that plain decoding would have saved; negative where it lost."""
        return self.passes - self.tokens

    def lucky(self, credit: float) -> float:
        """The pace with ``credit`` over the root of its rounds: a few unlucky ones are no verdict."""
        return self.value * (1 + credit / math.sqrt(max(1, self.rounds)))

    def hoped(self, pace: float, passes: float, credit: float) -> float:
        """``guessed(pace, passes).lucky(credit)``, without making it: every round asks."""
        value = (self.tokens + pace * passes) / (self.passes + passes)
        return value * (1 + credit / math.sqrt(max(1, self.rounds)))

    def add(self, tokens: float, passes: float, memory: float = 1.0) -> None:
        """One round; ``memory`` is the weight of those before it."""
        self.tokens = memory * self.tokens + tokens
        self.passes = memory * self.passes + passes
        self.rounds += 1
        self.length += LENGTH_RATE * (passes - self.length)

    def guessed(self, pace: float, passes: float) -> "Speedup":
        """The same with a guess that counts for so many plain passes."""
        return replace(self, tokens=self.tokens + pace * passes, passes=self.passes + passes)

    def weighing(self, passes: float) -> "Speedup":
        """The same pace with the weight of at most so many plain passes."""
        weight = min(passes, self.passes)
        return replace(self, tokens=weight * self.value, passes=weight)


def prior_speedup(prior: Prior | None) -> float | None:
    """The pace that earlier sessions measured, plain's where it was slower; None: they say nothing."""
    if prior is None or prior.pace is None:
        return None
    return min(max(prior.pace, 1.0), FASTEST)


def speedup_from_prior(prior: Prior | None, highest: float) -> Speedup | None:
    """What earlier sessions measured of a drafter, as far as a new one may hope for it."""
    if prior is None or prior.pace is None or prior.pace_weight <= 0:
        return None
    weight, pace = min(EARLIER, prior.pace_weight), min(max(prior.pace, SLOWEST), highest)
    return Speedup(weight * pace, weight, max(1, round(prior.pace_weight)))


@dataclass
class Calibration:
    """Accepted tokens of an arm's proposals, over those that it expected."""

    accepted: float = EVIDENCE
    expected: float = EVIDENCE

    @property
    def value(self) -> float:
        """At most 1: who expects too little is not corrected."""
        return min(1.0, self.accepted / self.expected)

    def believe(self, share: float) -> None:
        """Before any proposal: earlier sessions saw this share of what was expected come."""
        self.accepted = EVIDENCE * min(1.0, share)

    def fade(self) -> None:
        """A round without a proposal: what is held against an arm is forgotten in the end."""
        self.add(EVIDENCE * (1 - SLOW), EVIDENCE * (1 - SLOW))

    def add(self, accepted: float, expected: float) -> None:
        """One proposal."""
        self.accepted = SLOW * self.accepted + accepted
        self.expected = SLOW * self.expected + expected


@dataclass
class CopyShare:
    """Where the tokens of answers of one kind came from, newer ones first."""

    copied: float = 0.0
    other: float = EVIDENCE

    @property
    def drafted(self) -> float:
        """Share of tokens that were not copied."""
        return self.other / (self.copied + self.other)

    def add(self, tokens: int, *, copied: bool) -> None:
        """One round."""
        self.copied = SLOW * self.copied + tokens * copied
        self.other = SLOW * self.other + tokens * (not copied)
