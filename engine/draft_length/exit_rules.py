"""Where a draft of an early exit ends, and what stands beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from torch import Tensor

from engine.draft_length.shadow_tokens import BIN_WEIGHT, Counts, bin_of


@dataclass
class ExitStop:
    """Ends a draft by a rule, and remembers how sure the draft was of each token."""

    rule: Callable[[float], bool]
    heard: list[float] = field(default_factory=list)

    def drawn(self, probability: float) -> bool:
        """A token was drafted with this probability; True: the draft ends with it."""
        self.heard.append(probability)
        return self.rule(probability)

    def fed(self, hidden: Tensor) -> bool:
        """No draft model runs."""
        return False


@dataclass(frozen=True)
class Exit:
    """What is known of one exit."""

    matches: np.ndarray  # [BINS] by confidence
    misses: np.ndarray
    alpha: float  # of any token
    caught: tuple[float, ...] = ()  # share of its misses that each further candidate is; falls

    @classmethod
    def of(cls, known: Counts, layers: int, caught: np.ndarray) -> "Exit":
        """After so many layers; ``caught`` [E, K] of every exit."""
        at = layers - 1
        shares = tuple(caught[at].tolist())
        return cls(known.matches[at], known.misses[at], float(known.alpha[at]), shares)

    def survives(self, probability: float) -> float:
        """The chance of a token that was drafted with this probability."""
        place = bin_of(probability)
        matches, misses = self.matches[place], self.misses[place]
        return float((matches + BIN_WEIGHT * probability) / (matches + misses + BIN_WEIGHT))

    def worth(self, width: int) -> float:
        """Tokens that one more drafted token brings where it is reached, with ``width`` - 1 beside it."""
        return self.alpha + (1 - self.alpha) * sum(self.caught[: width - 1])


@dataclass
class Price:
    """Ends a draft where one more token is expected to bring less than the time for it is worth.

    What was drafted survives with the product of its bins' acceptance.
    """

    exit: Exit
    prices: Sequence[float]  # expected tokens that drafting the n-th must bring, n from 1
    width: int = 1  # candidates of every token
    reach: float = 1.0
    drafted: int = 0

    def __call__(self, probability: float) -> bool:
        """Weigh the next token; a draft also ends behind the last price."""
        self.reach *= self.exit.survives(probability)
        self.drafted += 1
        if self.drafted >= len(self.prices):
            return True
        return self.reach * self.exit.worth(self.width) <= self.prices[self.drafted]


@dataclass(frozen=True)
class ExitSiblings:
    """As many candidates beside a chain as gain most: they cost rows of the pass and nothing else.

    The k-th one beside a token brings one token where the chain holds up to it, misses it, and the
    right one is that. So the least sure tokens get most.
    """

    exit: Exit
    heard: Sequence[float]  # how sure the draft was of each token
    prices: Callable[[int], np.ndarray]  # by the chain's tokens: what 0, 1, .. must bring in all

    def beside(self, drafted: int) -> list[int]:
        """How many candidates each token of the chain gets."""
        ranked = sorted(self._chances(drafted), reverse=True)
        prices = self.prices(drafted).tolist()
        held = accumulate((chance for chance, _ in ranked), initial=0.0)
        gained = [sure - price for sure, price in zip(held, prices, strict=False)]
        most = max(range(len(gained)), key=gained.__getitem__)
        counts = [0] * drafted
        for _, place in ranked[:most]:
            counts[place] += 1
        return counts

    def _chances(self, drafted: int) -> list[tuple[float, int]]:
        """Of every further candidate, with the place of the token beside which it stands."""
        found, reach = [], 1.0
        for place, probability in enumerate(self.heard[:drafted]):
            holds = self.exit.survives(probability)
            found += [(reach * (1 - holds) * share, place) for share in self.exit.caught]
            reach *= holds
        return found
