"""Goodput lengths (SmartSpec, arXiv 2406.14066): most expected tokens per measured second.

k* = argmax over k >= 0 of (1 + sum_i prod_{j<=i} a_j) / (c0 + c1 (k + 1) + d k), where a_j is the
acceptance at depth j from evaluated tokens only, c0 + c1 n the target's pass over n rows and d the
draft's seconds per token, all measured while running. k = 0 is plain decoding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.protocols import Budget, Context, Outcome

PRIOR_ACCEPTANCE = 0.8  # optimistic: the first rounds of a request find out
PRIOR_WEIGHT = 2.0  # evaluated tokens that the prior counts for, per depth
FORGETTING = 0.9  # weight of the past per evaluated token
COST_FORGETTING = 0.98  # per pass; a busy machine changes its curve
TRUSTED, OUTLIER = 5.0, 4.0
PROBE_FIRST, PROBE_LAST = 4, 512  # plain passes before a probe, doubling while speculation loses
PROBE_LENGTH = 4


@dataclass
class _Line:
    """Least squares of seconds over rows with exponential forgetting; slope never negative."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        keep = COST_FORGETTING
        if self.weight > TRUSTED:  # a pause of the whole machine says nothing about the curve
            seconds = min(seconds, OUTLIER * self.at(rows))
        self.weight = keep * self.weight + 1
        self.rows = keep * self.rows + rows
        self.seconds = keep * self.seconds + seconds
        self.squares = keep * self.squares + rows * rows
        self.products = keep * self.products + rows * seconds

    def at(self, rows: int) -> float:
        if self.weight == 0:
            return 1.0
        mean_rows, mean = self.rows / self.weight, self.seconds / self.weight
        spread = self.squares / self.weight - mean_rows**2
        slope = (self.products / self.weight - mean_rows * mean) / spread if spread > 1e-9 else 0.0
        slope = min(max(slope, 0.0), mean / mean_rows)  # never a negative constant part either
        return mean + slope * (rows - mean_rows)


@dataclass
class _Trace:
    """Acceptance of one request, depth by depth, and how long it has been plain."""

    accepted: list[float] = field(default_factory=list)
    evaluated: list[float] = field(default_factory=list)
    plain: int = 0
    wait: int = PROBE_FIRST

    def rate(self, depth: int) -> float:
        """Acceptance at ``depth`` (0 first); unknown depths behave like the last known one."""
        if not self.evaluated:
            return PRIOR_ACCEPTANCE
        at = min(depth, len(self.evaluated) - 1)
        return min(self.accepted[at] / self.evaluated[at], 0.99)

    def note(self, depth: int, *, accepted: bool) -> None:
        while len(self.evaluated) <= depth:  # a prior that fades with the evidence
            self.accepted.append(PRIOR_WEIGHT * self.rate(depth))
            self.evaluated.append(PRIOR_WEIGHT)
        self.evaluated[depth] = FORGETTING * self.evaluated[depth] + 1
        self.accepted[depth] = FORGETTING * self.accepted[depth] + accepted


class Goodput:
    """Length per request and round, 0 included; probes with growing intervals while off."""

    def __init__(self) -> None:
        """Start without any measurement."""
        self._pass = _Line()
        self._draft = _Line()
        self._traces: dict[int, _Trace] = {}

    def budgets(self, batch: Sequence[Context], longest: Budget) -> list[Budget]:
        """The best budget for each context under the present measurements."""
        return [self._one(self._traces.setdefault(c.request, _Trace()), longest) for c in batch]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Costs from every pass, acceptance from the nodes that the walk looked at."""
        if outcomes:
            rows = sum(len(o.tree) for o in outcomes)
            self._pass.add(rows, outcomes[0].score_seconds)
        for outcome in outcomes:
            self._note(outcome)

    def forget(self, request: int) -> None:
        """Drop the request's acceptance; the costs stay."""
        self._traces.pop(request, None)

    def _note(self, outcome: Outcome) -> None:
        trace = self._traces.setdefault(outcome.context.request, _Trace())
        tree, path = outcome.tree, outcome.verdict.path
        if not tree.drafted:
            trace.plain += 1
            return
        self._draft.add(tree.drafted, outcome.draft_seconds)
        for depth in range(len(path) - 1):
            trace.note(depth, accepted=True)
        if tree.children[path[-1]]:
            trace.note(len(path) - 1, accepted=False)
        trace.plain = 0

    def _one(self, trace: _Trace, longest: Budget) -> Budget:
        fan = max(1, longest.nodes // max(1, longest.depth))
        best, best_rate = 0, 1 / self._pass.at(1)
        expected, reach = 1.0, 1.0
        for length in range(1, longest.depth + 1):
            reach *= trace.rate(length - 1)
            expected += reach
            rows = 1 + length * fan
            rate = expected / (self._pass.at(rows) + self._draft_seconds(length * fan))
            if rate > best_rate:
                best, best_rate = length, rate
        if best:
            trace.wait = PROBE_FIRST
        elif trace.plain >= trace.wait:
            trace.wait = min(2 * trace.wait, PROBE_LAST)
            best = min(PROBE_LENGTH, longest.depth)
        return Budget(best, best * fan)

    def _draft_seconds(self, drafted: int) -> float:
        return self._draft.at(drafted) if self._draft.weight else 0.0
