"""Priced lengths: for drafters that estimate the chance of every token that they propose.

Over many rounds the most tokens per second come from drafting, in every round, the k tokens that
maximise

    sum_{i<=k} s_i - R (t(k + 1) - t(1))

with s_i the chance that the first i tokens are accepted, t the target's measured pass and R the rate
at which tokens come in the long run (renewal reward; for k = 0 both parts are 0), with what is left
to copy afterwards: see ``engine.speculation.copy_planning``. SmartSpec (arXiv 2406.14066) takes s_i from the
request's acceptance by depth. A copy knows more: how long the match was that it continues, so that
what is copied goes on for long and what was a coincidence ends soon.
"""

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from engine.interfaces.drafter import (
    Budget,
    Context,
    DrafterResources,
    DraftLength,
    Outcome,
    StopRule,
)
from engine.statistics.speedup import Speedup, prior_speedup

FORGETTING = 0.95  # weight of the past per round
FIRST = 8.0  # plain passes that the first guess counts for


class Priced(DraftLength):
    """Every row has a price in tokens; the drafter proposes what is worth more, so often nothing."""

    stop_rules = frozenset({StopRule.PRICES})

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Share the target's measured cost."""
        self._cost, self._drafter = parts.cost, drafter
        self._paces: dict[int, Speedup] = {}

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """All that is allowed, at the prices of this round."""
        context = sum(len(c.ids) for c in batch)
        paces = [max(1.0, self._pace(c).value) for c in batch]
        return [
            replace(most, prices=self._cost.prices(1.0, most.nodes, len(batch), context), pace=pace)
            for pace, most in zip(paces, longest, strict=True)
        ]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """How fast tokens come."""
        for outcome in outcomes:
            plain = self._cost.seconds(outcome.batch, len(outcome.context.ids) * outcome.batch)
            seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
            pace = self._pace(outcome.context)
            pace.add(len(outcome.verdict.path), seconds / plain, FORGETTING)

    @override
    def forget(self, request: int) -> None:
        """Drop the request's pace."""
        self._paces.pop(request, None)

    def _pace(self, context: Context) -> Speedup:
        """The request's, which starts as earlier sessions ended, or as plain's."""
        if context.request not in self._paces:
            known = prior_speedup(context.priors.get(self._drafter)) or 1.0
            self._paces[context.request] = Speedup().guessed(known, FIRST)
        return self._paces[context.request]
