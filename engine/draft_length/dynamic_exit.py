"""Dynamic exit (DEL, arXiv 2504.05598): which early layer drafts, and when its draft ends.

Decayed counts of shadow tokens give each exit l its acceptance alpha_l, and before every round DEL
maximises the tokens per layer run

    TPL(l, d) = (1 - alpha_l^(d+1)) / (1 - alpha_l) / (d l + L)

over exits and depths; d = 0 is plain decoding. The best d only prices an exit: how long a draft gets
is decided token by token, from the draft's own confidence. Differences to the paper:

* The denominator is seconds of this machine, in the paper's units only until something is measured.
* A draft grows while its next token is expected to bring more than its time is worth; the paper's
  threshold tau_l ignores the length of the draft and the cost of a token.
* A request's counts have those of all requests as prior.
* Layers are not looked at in every round ("traced"), since the head product takes time. Other rounds
  learn from the exit that drafted. The gap between traces doubles until plain decoding becomes better
  than drafting, or the other way round.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from engine.draft_length.exit_counts import ExitCounts, chain_counts, shadow_counts
from engine.draft_length.exit_value import ExitChoice, ExitCost, best_exit
from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import (
    Budget,
    Context,
    DrafterResources,
    DraftLength,
    Outcome,
    StopRule,
)


@dataclass
class ExitStop:
    """Ends a draft where one more token is expected to bring less than its time is worth.

    The chance of the whole draft is the product of the acceptance of its tokens' bins.
    """

    known: ExitCounts
    exit: int
    prices: Sequence[float]  # expected tokens that drafting the n-th must bring, n from 1
    probabilities: list[float] = field(default_factory=list)  # of the tokens, under the draft
    reach: float = 1.0

    def drawn(self, probability: float) -> bool:
        """Weigh the next token; a draft also ends after the last price."""
        self.probabilities.append(probability)
        self.reach *= self.known.acceptance(self.exit, probability)
        drafted = len(self.probabilities)
        if drafted >= len(self.prices):
            return True
        return self.reach * float(self.known.alpha[self.exit - 1]) <= self.prices[drafted]

    def fed(self, hidden: Tensor) -> bool:
        """No draft model runs."""
        return False


@dataclass
class ExitPool:
    """What all requests of one kind of sampling measured."""

    counts: ExitCounts


class RequestExits:
    """What one request's layers are worth, and when they are traced next."""

    def __init__(self, pool: ExitPool) -> None:
        """Nothing was measured."""
        self.pool = pool
        self.counts = ExitCounts.empty(len(pool.counts.table))  # its own
        self.choice: ExitChoice | None = None  # of the last round; None: there was none to make
        self.stop: ExitStop | None = None
        self.looked: np.ndarray | None = None  # counts of the last round, if it was traced
        self.gap = self.rest = 1  # rounds from a trace to the next, and while decoding plainly
        self.followed = False  # whether the last trace only followed a good one
        self.since = 0  # rounds since the last trace

    @property
    def due(self) -> bool:
        """Whether this round is traced."""
        return self.since + 1 >= self.gap

    @property
    def resting(self) -> bool:
        """Whether it decodes plainly and nothing was measured that could change that."""
        plain = self.choice is not None and self.choice.depth == 0
        return plain and self.looked is None and not self.due

    @property
    def known(self) -> ExitCounts:
        """The best estimate of its exits."""
        return self.counts.with_pool(self.pool.counts)

    def choose(self, known: ExitCounts, cost: np.ndarray) -> ExitChoice:
        """The choice for a round of this cost [E, D + 1]; sets when the layers are traced next."""
        before, self.choice = self.choice, best_exit(known.alpha, cost)
        drafts = self.choice.depth > 0
        if before is not None and drafts != (before.depth > 0):
            self.gap = self.rest = 1
        elif self.looked is not None:
            self._plan_trace(drafts=drafts, best=self.looked[self.choice.exit - 1])
        self.looked = None
        return self.choice

    def traced(self, fresh: np.ndarray) -> None:
        """All layers were looked at, counts [E, 2, bins]; what was known fades with every round."""
        drafted = self.stop is not None
        self._learn(fresh, 1 if drafted else self.since + 1)
        self.looked, self.stop, self.since = fresh, None, 0

    def untraced(self, accepted: int) -> None:
        """The exit's own chain, whose first ``accepted`` tokens were right."""
        self.since += 1
        stop, self.stop = self.stop, None
        if stop is not None and stop.probabilities:
            exits = len(self.counts.table)
            self._learn(chain_counts(exits, stop.exit, stop.probabilities, accepted), 1)

    def _learn(self, fresh: np.ndarray, rounds: int) -> None:
        self.counts = self.counts.after(fresh, TUNING.request_memory**rounds)
        self.pool.counts = self.pool.counts.after(fresh, TUNING.pool_memory**rounds)

    def _plan_trace(self, *, drafts: bool, best: np.ndarray) -> None:
        """When to trace again; ``best`` [2, bins] is what was seen of the best exit."""
        matches, misses = best.sum(1)
        if drafts:
            self.gap = min(2 * self.gap, TUNING.trace_gap)
        elif matches > misses and not self.followed:  # look again, once
            self.followed, self.gap = True, 1
        else:
            self.followed, self.rest = False, min(2 * self.rest, TUNING.longest_rest)
            self.gap = self.rest


class DynamicExit(DraftLength):
    """Exit layer and length per request and round; plain, with rare traced passes, where it loses."""

    stop_rules = frozenset({StopRule.CHANCES, StopRule.EXIT})

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Take the target, whose layers draft."""
        self._target = parts.target
        self._costs = ExitCost(parts.cost, self._target.layers)
        # layers that do not stay in memory would be read for every drafted token
        source = parts.target.source
        self._deepest = self._target.layers if source is None else source.whole
        self._requests: dict[int, RequestExits] = {}
        self._pools: dict[tuple[bool, int], ExitPool] = {}  # by kind of sampling

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Each request on its own, as if all others of the pass drafted like it."""
        requests = [self._request(context) for context in batch]
        most = TUNING.longest_chain
        depths = [min(budget.depth, budget.nodes, most) for budget in longest]
        awake = [d for r, d in zip(requests, depths, strict=True) if d > 0 and not r.resting]
        if not awake or self._target.layers < 2:
            return [Budget(0, 0)] * len(batch)
        cost = self._costs.table(batch, max(awake))
        cost[self._deepest :, 1:] = np.inf
        return [
            Budget(0, 0) if d < 1 or r.resting else self._budget(r, cost[:, : d + 1])
            for r, d in zip(requests, depths, strict=True)
        ]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn the draft's cost, shadow tokens of traced passes, and the exit's own tokens of others."""
        self._costs.observe(outcomes)
        for outcome in outcomes:
            request = self._request(outcome.context)
            if outcome.scores is not None and outcome.scores.states is not None:
                request.traced(self.shadows(outcome))
            else:
                request.untraced(len(outcome.verdict.path) - 1)

    @override
    def forget(self, request: int) -> None:
        """What the request measured stays in its pool."""
        self._requests.pop(request, None)

    def shadows(self, outcome: Outcome) -> np.ndarray:
        """Counts [E, 2, bins] of a traced round, of the accepted path: there the context was right."""
        assert outcome.scores is not None
        assert outcome.scores.states is not None
        path = list(outcome.verdict.path)
        judged = outcome.scores.logits[path]
        fresh = np.zeros_like(ExitCounts.empty(self._target.layers - 1).table)
        at = 0
        for part in self._parts(outcome.scores.states[:-1, path]):
            rows = judged[at : at + part.shape[1]]
            fresh += shadow_counts(self._target.read(part), rows, outcome.context)
            at += part.shape[1]
        return fresh

    def _request(self, context: Context) -> RequestExits:
        if context.request not in self._requests:
            kind = (context.draws, round(2 * context.sampling.temperature))
            if kind not in self._pools:
                self._pools[kind] = ExitPool(ExitCounts.empty(self._target.layers - 1))
            self._requests[context.request] = RequestExits(self._pools[kind])
        return self._requests[context.request]

    def _budget(self, request: RequestExits, cost: np.ndarray) -> Budget:
        known = request.known
        if not known.seen.any():  # the drafter's usual exit gives the first counts
            return Budget(1, 1, trace=True)
        choice = request.choose(known, cost)
        if choice.depth == 0:
            return Budget(0, 0, trace=request.due)
        depth, prices = cost.shape[1] - 1, choice.rate * np.diff(cost[choice.exit - 1])
        request.stop = ExitStop(known, choice.exit, prices.tolist())
        return Budget(depth, depth, stop=request.stop, exit_layer=choice.exit, trace=request.due)

    def _parts(self, states: Tensor) -> Iterator[Tensor]:
        """States [L, n, C] in parts whose logits fit into memory; nearly always in one."""
        width = max(1, TUNING.most_logits // (len(states) * self._target.vocab))
        return iter(torch.split(states, width, 1))
