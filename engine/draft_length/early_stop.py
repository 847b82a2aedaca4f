"""Chains that end early: goodput decides whether to draft, a rule token by token how far it goes.

A draft goes on while the chance that all of it is accepted is more than what the next token costs:
see ``engine.draft_length.stop_threshold``.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from engine.draft_length.goodput import Goodput
from engine.draft_length.stop_threshold import StopThreshold
from engine.interfaces.drafter import Budget, Context, DrafterResources, DraftLength, Outcome, Stop
from engine.request import Option

LIMIT = Option("limit", "most tokens of one draft", 20, 1, 1024)  # 20 as in the paper


class EarlyStop(DraftLength):
    """Length policy over a stop rule; off, and probing with growing intervals, where goodput says so."""

    options: ClassVar[tuple[Option, ...]] = (LIMIT,)

    def __init__(self, parts: DrafterResources, drafter: str, floor: float | None) -> None:
        """``floor`` is the least chance of full acceptance; None: what is measured."""
        self._longest = int(LIMIT.of(parts.options))
        self._floor = floor
        self._switch = Goodput(parts, drafter)

    @abstractmethod
    def stop(self, context: Context, floors: StopThreshold) -> Stop:
        """The rule of one draft, which ends where full acceptance is less likely than ``floors`` ask."""

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Nothing where goodput says so, else all that is allowed and a fresh stop."""
        depths = [min(most.depth, most.nodes, self._longest) for most in longest]
        capped = [Budget(depth, depth) for depth in depths]
        return self._switch.ending(batch, capped, self._stop)

    def _stop(self, context: Context, floors: StopThreshold) -> Stop:
        return self.stop(
            context, floors if self._floor is None else StopThreshold.constant(self._floor)
        )

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Goodput learns acceptance and costs."""
        self._switch.observe(outcomes)

    @override
    def forget(self, request: int) -> None:
        """The request's acceptance goes; costs stay."""
        self._switch.forget(request)
