"""Confidence lengths: a chain ends when the draft itself has become unsure; nothing is trained.

The probability that the draft gave to what it drafted stands for the chance that it is accepted, and
their product for the chance that the whole chain is. A draft taught by its target is honest enough
for that; where it is not, an acceptance head learns the difference.
"""

from typing_extensions import override

from engine.draft_length.early_stop import LIMIT, EarlyStop
from engine.draft_length.stop_threshold import ConfidenceStop, StopThreshold
from engine.interfaces.drafter import Context, DrafterResources, Stop, StopRule
from engine.request import Option

FLOOR = Option("floor", "least product of a draft's probabilities; -1: by measured costs", -1, -1)
TAU = Option("tau", "least probability of each drafted token", 0)


class Confidence(EarlyStop):
    """Ends a chain at a least product of its probabilities, or at a least probability of each token.

    Measured on word problems, a floor on the product was faster than every threshold on single
    tokens (0.2 to 0.7).
    """

    stop_rules = frozenset({StopRule.CHANCES})

    options = (LIMIT, FLOOR, TAU)

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Read the options."""
        floor = FLOOR.of(parts.options)
        super().__init__(parts, drafter, None if floor < 0 else floor)
        self._tau = TAU.of(parts.options)

    @override
    def stop(self, context: Context, floors: StopThreshold) -> Stop:
        """The rule of one draft."""
        return ConfidenceStop(self._tau, floors)
