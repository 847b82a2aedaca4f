"""Chains that end early: goodput decides whether to draft, a rule token by token how far it goes.

A draft goes on while the chance that all of it is accepted is more than what the next token costs:
see ``engine.draft_length.stop_threshold``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from engine.draft_length.goodput import Goodput
from engine.draft_length.stop_threshold import StopThreshold
from engine.errors import InvalidRequest
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, Stop, StopRule

LONGEST = 20  # tokens of one draft, as in the paper


class EarlyStop(ABC):
    """Length policy over a stop rule; off, and probing with growing intervals, where goodput says so.

    The option ``limit`` caps the length of a draft.
    """

    prompt_rows: ClassVar[int] = 0
    steers_by: ClassVar[frozenset[StopRule]]

    def __init__(self, parts: DrafterResources, drafter: str, floor: float | None) -> None:
        """``floor`` is the least chance of full acceptance; None: what is measured."""
        limit = option(parts, "limit", 1, 1024)
        self._longest = LONGEST if limit is None else int(limit)
        self._floor = floor
        self._switch = Goodput(parts, drafter)

    @abstractmethod
    def stop(self, context: Context, floors: StopThreshold) -> Stop:
        """The rule of one draft, which ends where full acceptance is less likely than ``floors`` ask."""

    def prompt(self, context: Context, states: Tensor) -> None:  # noqa: B027 - nothing to add
        """Nothing is wanted of the prompt."""

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Nothing where goodput says so, else all that is allowed and a fresh stop."""
        depths = [min(most.depth, most.nodes, self._longest) for most in longest]
        capped = [Budget(depth, depth) for depth in depths]
        return self._switch.ending(batch, capped, self._stop)

    def _stop(self, context: Context, floors: StopThreshold) -> Stop:
        return self.stop(
            context, floors if self._floor is None else StopThreshold.constant(self._floor)
        )

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Goodput learns acceptance and costs."""
        self._switch.observe(outcomes)

    def forget(self, request: int) -> None:
        """The request's acceptance goes; costs stay."""
        self._switch.forget(request)


def option(parts: DrafterResources, name: str, least: float, most: float) -> float | None:
    """A number of the request's options, None where it is not given; raises InvalidRequest."""
    value = parts.options.get(name)
    if value is not None and not least <= value <= most:
        raise InvalidRequest(f"option {name} is {value:g}; choose {least:g} to {most:g}")
    return value
