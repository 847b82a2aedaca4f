"""Priced lengths: for drafters that estimate the chance of every token that they propose.

Over many rounds the most tokens per second come from drafting, in every round, the k tokens that
maximise

    sum_{i<=k} s_i - R (t(k + 1) - t(1))

with s_i the chance that the first i tokens are accepted, t the target's measured pass and R the rate
at which tokens come in the long run (renewal reward; both parts are 0 for k = 0), with what is left to
copy afterwards: see ``engine.speculation.copy_planning``. SmartSpec (arXiv 2406.14066) takes s_i from
the request's acceptance by depth; the length of the match that a copy continues predicts it better.
"""

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import (
    Budget,
    Context,
    DrafterResources,
    DraftLength,
    Outcome,
    StopRule,
)
from engine.statistics.decayed import Speedup, speedup_from_prior


class Priced(DraftLength):
    """Every row has a price in tokens; the drafter proposes what is worth more, so often nothing."""

    stop_rules = frozenset({StopRule.PRICES})

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Share the target's measured cost."""
        self._cost, self._drafter = parts.cost, drafter
        self._speedups: dict[int, Speedup] = {}

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """All that is allowed, at the prices of this round."""
        context = sum(len(c.ids) for c in batch)
        speedups = [max(1.0, self._speedup(c).value) for c in batch]
        return [
            replace(most, prices=self._cost.prices(1.0, most.nodes, len(batch), context), pace=pace)
            for pace, most in zip(speedups, longest, strict=True)
        ]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn how fast tokens come."""
        for outcome in outcomes:
            plain = self._cost.seconds(*outcome.plain_pass)
            seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
            speedup = self._speedup(outcome.context)
            speedup.count(len(outcome.verdict.path), seconds / plain, TUNING.request_memory)

    @override
    def forget(self, request: int) -> None:
        """Drop the request's speedup."""
        self._speedups.pop(request, None)

    def _speedup(self, context: Context) -> Speedup:
        """The request's, which starts as earlier sessions ended, or as plain decoding."""
        if context.request not in self._speedups:
            found = speedup_from_prior(context.priors.get(self._drafter)) or Speedup()
            known, weight = max(1.0, found.value), TUNING.pool_weight
            self._speedups[context.request] = Speedup().with_prior(known, weight)
        return self._speedups[context.request]
