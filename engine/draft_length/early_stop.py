"""Chains that end early: goodput decides whether to draft, a rule token by token how far.

A chain grows while the chance that all of it is accepted is more than what the next token costs: see
``engine.draft_length.stop_threshold``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from engine.draft_length.goodput import Goodput
from engine.draft_length.stop_threshold import ConfidenceStop, StopThreshold
from engine.draft_length.tuning import TUNING, Tuning
from engine.errors import InvalidRequest
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, Stop, StopRule


class EarlyStop(ABC):
    """Length policy over a stop rule; off, and probing with growing intervals, where goodput says so.

    The option ``limit`` caps the length of a draft.
    """

    prompt_rows: ClassVar[int] = 0
    steers_by: ClassVar[frozenset[StopRule]]

    def __init__(
        self,
        parts: DrafterResources,
        drafter: str,
        floor: float | None,
        tuning: Tuning = TUNING,
    ) -> None:
        """``floor`` is the least chance of full acceptance; None: it is measured."""
        limit = option(parts, "limit", 1, 1024)
        self._longest = tuning.longest_chain if limit is None else int(limit)
        self._floor = floor
        self._switch = Goodput(parts, drafter, tuning)

    @abstractmethod
    def stop(self, context: Context, threshold: StopThreshold) -> Stop:
        """The rule of one draft, which ends where full acceptance is less likely than ``threshold``."""

    def prompt(self, context: Context, states: Tensor) -> None:  # noqa: B027 - nothing to add
        """Nothing is wanted of the prompt."""

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Nothing where goodput says so, else all that is allowed and a fresh stop."""
        depths = [min(most.depth, most.nodes, self._longest) for most in longest]
        capped = [Budget(depth, depth) for depth in depths]
        return self._switch.ending(batch, capped, self._stop)

    def _stop(self, context: Context, threshold: StopThreshold) -> Stop:
        return self.stop(
            context, threshold if self._floor is None else StopThreshold.constant(self._floor)
        )

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Goodput learns acceptance and costs."""
        self._switch.observe(outcomes)

    def forget(self, request: int) -> None:
        """The request's acceptance is dropped; costs stay."""
        self._switch.forget(request)


class Confidence(EarlyStop):
    """A chain ends when the draft itself has become unsure; nothing is trained.

    The product of the probabilities that the draft gave to its tokens is the estimate that the whole
    chain is accepted. Option ``floor``: its least value, measured unless given. Option ``tau``: least
    probability of each token, 0 by default.
    """

    steers_by: ClassVar[frozenset[StopRule]] = frozenset({StopRule.CHANCES})

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Read the options."""
        super().__init__(parts, drafter, option(parts, "floor", 0, 1))
        self._tau = option(parts, "tau", 0, 1) or 0.0

    @override
    def stop(self, context: Context, threshold: StopThreshold) -> Stop:
        """The rule of one draft."""
        return ConfidenceStop(self._tau, threshold)


def option(parts: DrafterResources, name: str, least: float, most: float) -> float | None:
    """A number of the request's options, None where it is not given; raises InvalidRequest."""
    value = parts.options.get(name)
    if value is not None and not least <= value <= most:
        raise InvalidRequest(f"option {name} is {value:g}; choose {least:g} to {most:g}")
    return value
