"""Priced lengths: for drafters that estimate the chance of every token that they propose.

Over many rounds the most tokens per second come from drafting, in every round, the k tokens that
maximise

    sum_{i<=k} s_i - R (t(k + 1) - t(1))

with s_i the chance that the first i tokens are accepted, t the target's measured pass and R the rate
at which tokens come in the long run (renewal reward; for k = 0 both parts are 0). SmartSpec (arXiv
2406.14066) takes s_i from the request's acceptance by depth. A copy knows more: how long the match
was that it continues, so that what is copied goes on for long and what was a coincidence ends soon.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from engine.protocols import Budget, Context, Outcome, Parts

FORGETTING = 0.95  # weight of the past per round
FIRST = 8.0  # plain passes that the first guess, plain's own rate, counts for


@dataclass
class _Rate:
    """Tokens of one request over plain passes' worth of seconds."""

    tokens: float = FIRST
    passes: float = FIRST

    def add(self, tokens: float, passes: float) -> None:
        """One round."""
        self.tokens = FORGETTING * self.tokens + tokens
        self.passes = FORGETTING * self.passes + passes


class Priced:
    """Every row has a price in tokens; the drafter proposes what is worth more, so often nothing."""

    prompt_rows: ClassVar[int] = 0

    def __init__(self, parts: Parts, drafter: str) -> None:
        """Share the target's measured cost."""
        self._cost = parts.cost
        self._rates: dict[int, _Rate] = {}

    def prompt(self, context: Context, states: Tensor) -> None:
        """Nothing is wanted of the prompt."""

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """All that is allowed, at the prices of this round."""
        context = sum(len(c.ids) for c in batch)
        return [
            replace(most, prices=self._cost.prices(self._pace(c), most.nodes, len(batch), context))
            for c, most in zip(batch, longest, strict=True)
        ]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """How fast tokens come."""
        for outcome in outcomes:
            plain = self._cost.seconds(outcome.batch, len(outcome.context.ids) * outcome.batch)
            seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
            rate = self._rates.setdefault(outcome.context.request, _Rate())
            rate.add(len(outcome.verdict.path), seconds / plain)

    def forget(self, request: int) -> None:
        """Drop the request's rate."""
        self._rates.pop(request, None)

    def _pace(self, context: Context) -> float:
        rate = self._rates.get(context.request, _Rate())
        return max(1.0, rate.tokens / rate.passes)
