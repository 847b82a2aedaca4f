"""Confidence lengths: a chain ends when the draft itself has become unsure; nothing is trained.

The probability that the draft gave to what it drafted stands for the chance that it is accepted, and
their product for the chance that the whole chain is. A draft taught by its target is honest enough
for that; where it is not, an acceptance head learns the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from engine.lengths.early_stop import EarlyStop, option
from engine.protocols.drafting import Context, Parts, Rule, Stop


@dataclass
class Unsure:
    """Stops once a token was less likely than ``tau``, or all of them together than their floor."""

    tau: float
    floors: Sequence[float]  # of 1, 2, ... tokens
    survival: float = 1.0
    drafted: int = 0

    def drawn(self, probability: float) -> bool:
        """The token stays in the draft either way: dropping it for what it is would be a bias."""
        self.survival *= probability
        self.drafted += 1
        return probability < self.tau or self.survival < self.floors[self.drafted - 1]

    def fed(self, hidden: Tensor) -> bool:
        """States are not read."""
        return False


class Confidence(EarlyStop):
    """Option ``floor``: least product of the probabilities, measured unless given.

    Option ``tau``: least probability of each token, 0 by default. Measured on word problems, a
    floor on the product was faster than every threshold on single tokens (0.2 to 0.7).
    """

    steers_by: ClassVar[frozenset[Rule]] = frozenset({Rule.CHANCES})
    patience: ClassVar[float] = 0.75  # tokens are accepted more often than they are drafted

    def __init__(self, parts: Parts, drafter: str) -> None:
        """Read the options."""
        super().__init__(parts, drafter, option(parts, "floor", 0, 1))
        self._tau = option(parts, "tau", 0, 1) or 0.0

    @override
    def stop(self, context: Context, floors: Sequence[float]) -> Stop:
        """The rule of one draft."""
        return Unsure(self._tau, floors)
