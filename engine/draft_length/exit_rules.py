"""Where a draft of an early exit ends, and which siblings its tokens get."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from torch import Tensor

from engine.draft_length.shadow_tokens import Counts, bin_of
from engine.draft_length.tuning import TUNING


@dataclass(frozen=True)
class Exit:
    """What is known of one exit."""

    matches: np.ndarray  # [bins] by confidence
    misses: np.ndarray  # [bins]
    alpha: float  # acceptance of any token
    caught: tuple[float, ...] = ()  # share of its misses that each further candidate is; falls

    @classmethod
    def of(cls, known: Counts, layers: int, caught: np.ndarray) -> "Exit":
        """The exit after ``layers`` layers; ``caught`` [E, K] of every exit."""
        at = layers - 1
        shares = tuple(caught[at].tolist())
        return cls(known.matches[at], known.misses[at], float(known.alpha[at]), shares)

    def survives(self, probability: float) -> float:
        """The chance that a token is accepted that was drafted with this probability."""
        place = bin_of(probability, len(self.matches))
        matches, misses = self.matches[place], self.misses[place]
        hits = matches + TUNING.bin_weight * probability
        return float(hits / (matches + misses + TUNING.bin_weight))

    def worth(self, width: int) -> float:
        """Tokens that one more drafted token with ``width`` - 1 siblings brings where it is reached."""
        return self.alpha + (1 - self.alpha) * sum(self.caught[: width - 1])


@dataclass
class ExitStop:
    """Ends a draft where one more token is expected to bring less than its time is worth.

    The chance of the whole draft is the product of the acceptance of its tokens' bins.
    """

    exit: Exit
    prices: Sequence[float]  # expected tokens that drafting the n-th must bring, n from 1
    width: int = 1  # candidates of every token
    probabilities: list[float] = field(default_factory=list)  # of the tokens, under the draft
    reach: float = 1.0

    def drawn(self, probability: float) -> bool:
        """Weigh the next token; a draft also ends after the last price."""
        self.probabilities.append(probability)
        self.reach *= self.exit.survives(probability)
        drafted = len(self.probabilities)
        if drafted >= len(self.prices):
            return True
        return self.reach * self.exit.worth(self.width) <= self.prices[drafted]

    def fed(self, hidden: Tensor) -> bool:
        """No draft model runs."""
        return False


@dataclass(frozen=True)
class ExitSiblings:
    """As many siblings of a chain's tokens as gain most: they cost only rows of the pass.

    The k-th sibling of a token brings one token where the chain is accepted up to the token, the
    token is refused, and the sibling is the right one. So the least sure tokens get most.
    """

    exit: Exit
    probabilities: Sequence[float]  # of each token under the draft
    prices: Callable[[int], np.ndarray]  # by tokens of the chain: what 0, 1, .. siblings must bring

    def beside(self, drafted: int) -> list[int]:
        """How many siblings each token of the chain gets."""
        ranked = sorted(self._chances(drafted), reverse=True)
        prices = self.prices(drafted).tolist()
        gains = accumulate((chance for chance, _ in ranked), initial=0.0)
        net = [gain - price for gain, price in zip(gains, prices, strict=False)]
        most = max(range(len(net)), key=net.__getitem__)
        counts = [0] * drafted
        for _, place in ranked[:most]:
            counts[place] += 1
        return counts

    def _chances(self, drafted: int) -> list[tuple[float, int]]:
        """Of every sibling: the chance that it is taken, and the place of its token in the chain."""
        found, reach = [], 1.0
        for place, probability in enumerate(self.probabilities[:drafted]):
            accepted = self.exit.survives(probability)
            found += [(reach * (1 - accepted) * share, place) for share in self.exit.caught]
            reach *= accepted
        return found
