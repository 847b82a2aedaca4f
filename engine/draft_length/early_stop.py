"""Chains that end early: goodput decides whether to draft, a rule token by token how far.

A chain grows while the chance that all of it is accepted is more than what the next token costs: see
``engine.draft_length.stop_threshold``.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from engine.draft_length.goodput import Goodput
from engine.draft_length.stop_threshold import ConfidenceStop, StopThreshold
from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Budget, Context, DrafterResources, Stop, StopRule
from engine.request import Option

LIMIT = Option("limit", "most tokens of one draft", TUNING.longest_chain, 1, 1024)
FLOOR = Option("floor", "least product of a draft's probabilities; -1: by measured costs", -1, -1)
TAU = Option("tau", "least probability of each drafted token", 0)


class EarlyStop(Goodput):
    """Length policy over a stop rule; off, and probing with growing intervals, where goodput says so."""

    options: ClassVar[tuple[Option, ...]] = (LIMIT,)

    def __init__(self, parts: DrafterResources, drafter: str, floor: float | None) -> None:
        """``floor`` is the least chance of full acceptance; None: it is measured."""
        super().__init__(parts, drafter)
        self._longest, self._floor = int(LIMIT.of(parts.options)), floor

    @abstractmethod
    def stop(self, context: Context, threshold: StopThreshold) -> Stop:
        """The rule of one draft, which ends where full acceptance is less likely than ``threshold``."""

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Nothing where goodput says so, else all that is allowed and a fresh stop."""
        depths = [min(most.depth, most.nodes, self._longest) for most in longest]
        capped = [Budget(depth, depth) for depth in depths]
        return self.ending(batch, capped, self._stop)

    def _stop(self, context: Context, threshold: StopThreshold) -> Stop:
        return self.stop(
            context, threshold if self._floor is None else StopThreshold.constant(self._floor)
        )


class Confidence(EarlyStop):
    """A chain ends when the draft itself has become unsure; nothing is trained.

    The product of the probabilities that the draft gave to its tokens is the estimate that the whole
    chain is accepted.
    """

    stop_rules = frozenset({StopRule.CHANCES})
    options = (LIMIT, FLOOR, TAU)

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Read the options."""
        floor = FLOOR.of(parts.options)
        super().__init__(parts, drafter, None if floor < 0 else floor)
        self._tau = TAU.of(parts.options)

    @override
    def stop(self, context: Context, threshold: StopThreshold) -> Stop:
        """The rule of one draft."""
        return ConfidenceStop(self._tau, threshold)
