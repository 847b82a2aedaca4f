"""Dynamic exit (DEL, arXiv 2504.05598): which early layer drafts, and when its draft ends.

After a pass the states of every layer are known, so one head product over them gives what each layer
would have drafted ("shadow tokens", section 3.1). Decayed counts give each exit l its acceptance
alpha_l, and before every round DEL maximises the tokens per layer run

    TPL(l, d) = (1 - alpha_l^(d+1)) / (1 - alpha_l) / (d l + L)

over exits and depths; d = 0 is plain decoding. The best d only prices an exit: how long a draft gets
is decided token by token, from the draft's own confidence. Differences to the paper:

* The denominator is seconds of this machine, in the paper's units only until something is measured.
* A draft grows while its next token is expected to bring more than its time is worth; the paper's
  threshold tau_l ignores the length of the draft and the cost of a token.
* Where rows of a pass are free, the tokens of a chain get an exit's next likeliest tokens as siblings.
* A request's counts have those of all requests as prior, and prompts count for little.
* Layers are not looked at in every round ("traced"), since the head product takes time. Other rounds
  learn from the exit that drafted. The gap between traces grows while the choice stays the same; while
  decoding plainly it grows further, except for a few traces right after a good one.
* A choice is kept for a few rounds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from engine.draft_length.exit_rules import Exit, ExitSiblings, ExitStop
from engine.draft_length.exit_value import (
    ExitChoice,
    ExitCost,
    ExitOdds,
    RoundCost,
    best_exit,
    best_rate,
)
from engine.draft_length.shadow_tokens import Counts, bin_of, shadow_counts
from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import (
    Budget,
    Context,
    DrafterResources,
    DraftLength,
    Outcome,
    StopRule,
)
from engine.interfaces.target import Capability
from engine.request import Option
from engine.speculation.tree import DraftTree

UNITS = Option("units", "1: the paper's denominator", 0)
CHAINS = Option("chains", "1: chains only, no trees", 0)
TOO_DEEP = 1e9  # passes; the cost of an exit above the layers that stay in memory


@dataclass
class KeptChoice:
    """A choice that drafts, and what it was made from; it is kept for some rounds."""

    choice: ExitChoice
    known: Counts
    cost: RoundCost
    batch: int  # requests that shared the pass it was made for
    rounds: int  # left

    @cached_property
    def exit(self) -> Exit:
        """What is known of the exit."""
        return Exit.of(self.known, self.choice.exit, self.known.caught)

    @cached_property
    def prices(self) -> Sequence[float]:
        """Tokens that drafting the n-th must bring; empty if there is no room for the width now."""
        costs = self.cost.wide(self.choice.width)[self.choice.exit - 1]
        prices: list[float] = (self.choice.rate * np.diff(costs[np.isfinite(costs)])).tolist()
        return prices

    def sibling_prices(self, most: int, drafted: int) -> np.ndarray:
        """Tokens that 0, 1, .. siblings of a chain must bring, with at most ``most`` nodes in all."""
        return self.choice.rate * self.cost.upto(most).siblings(self.choice.exit, drafted)


@dataclass
class ExitPool:
    """What all requests of one kind of sampling measured."""

    counts: Counts
    plain_gap: int = 1  # of the newest answer that ended


class RequestExits:
    """What one request's layers are worth, and when they are traced next."""

    def __init__(self, pool: ExitPool) -> None:
        """Nothing was measured; the first trace comes later if the last answer's came rarely."""
        self.pool = pool
        self.counts = Counts.empty(len(pool.counts.table))  # its own
        self.choice: ExitChoice | None = None  # of the last round; None: there was none to make
        self.kept: KeptChoice | None = None
        self.stop: ExitStop | None = None
        self.fresh: np.ndarray | None = None  # counts of the last round, if it was traced
        self.gap = self.plain_gap = min(pool.plain_gap, TUNING.first_trace_gap)
        self.followed = 0  # traces in a row after a good one while plain
        self.since = 0  # rounds since the last trace

    @property
    def due(self) -> bool:
        """Whether this round is traced."""
        return self.since + 1 >= self.gap

    @property
    def resting(self) -> bool:
        """Whether it decodes plainly and nothing was measured that could change that."""
        plain = self.choice is not None and self.choice.depth == 0
        return plain and self.fresh is None and not self.due

    @property
    def known(self) -> Counts:
        """The best estimate of its exits."""
        return self.counts.with_pool(self.pool.counts)

    def kept_choice(self, batch: int, depth: int) -> KeptChoice | None:
        """The last choice, if it holds in this round too, in a pass of ``batch`` requests."""
        last = self.kept
        if last is None or last.rounds < 1 or self.fresh is not None:
            return None
        return last if last.batch == batch and last.choice.depth <= depth else None

    def choose(self, known: Counts, cost: RoundCost) -> ExitChoice:
        """The choice for a round of this cost; sets when the layers are traced next."""
        odds = ExitOdds(known.alpha, known.caught)
        choice = best_exit(odds, cost)
        if self.fresh is not None and self.choice is not None:
            unchanged = best_rate(self.choice.exit, odds, cost)
            self.gap = self._next_gap(self.choice, choice, unchanged, self.fresh)
        self.choice, self.fresh = choice, None
        return choice

    def traced(self, fresh: np.ndarray) -> None:
        """Counts [E, columns] of all layers in one round."""
        self.counts = self.counts.after(fresh, TUNING.exit_memory)
        self.pool.counts = self.pool.counts.after(fresh, TUNING.exit_pool_memory)
        self.fresh, self.stop, self.since = fresh, None, 0

    def untraced(self, tree: DraftTree, path: Sequence[int]) -> None:
        """The exit's own tokens: a chain whose first ones were right, and its siblings."""
        self.since += 1
        if self.choice is None or self.stop is None or not self.stop.probabilities:
            return
        drafted = self.stop.probabilities
        accepted = sum(0 < node <= len(drafted) for node in path)
        fresh = np.zeros(TUNING.columns)
        for place, confidence in enumerate(drafted[: accepted + 1]):
            missed = int(place >= accepted)
            fresh[missed * TUNING.bins + bin_of(confidence, TUNING.bins)] += 1.0
        if accepted < len(drafted):
            siblings = [node for node in tree.children[accepted] if node > len(drafted)]
            found, compared = np.split(fresh[2 * TUNING.bins :], 2)
            found[: len(siblings)] = [node == path[-1] for node in siblings]
            compared[: len(siblings)] = 1.0
        layer = self.choice.exit
        self.counts = self.counts.after_exit(layer, fresh, TUNING.exit_memory)
        self.pool.counts = self.pool.counts.after_exit(layer, fresh, TUNING.exit_pool_memory)
        self.stop = None

    def _next_gap(
        self, before: ExitChoice, now: ExitChoice, unchanged: float, fresh: np.ndarray
    ) -> int:
        """Rounds to the next trace: more if nothing changed, 1 if plain decoding missed something.

        ``unchanged`` is the rate of the exit before, as known now: a little more is no change.
        """
        if now.depth == 0:
            counts = fresh[now.exit - 1, : 2 * TUNING.bins]
            matches, misses = counts.reshape(2, TUNING.bins).sum(1)
            if matches > misses and self.followed < TUNING.follow_traces:
                self.followed += 1
                return 1
            self.followed = 0
            self.plain_gap = min(2 * self.plain_gap, TUNING.plain_trace_gap)
            return self.plain_gap
        self.followed, self.plain_gap = 0, 1
        if before.depth == 0:
            return 1
        settled = now.rate < TUNING.news * unchanged
        return min(2 * self.gap, TUNING.trace_gap) if settled else max(1, self.gap // 2)


class DynamicExit(DraftLength):
    """Exit layer and length per request and round; plain, with rare traced passes, where it loses."""

    stop_rules = frozenset({StopRule.CHANCES, StopRule.EXIT})
    prompt_rows = TUNING.prompt_rows
    options = (UNITS, CHAINS)

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Take the target, whose layers draft."""
        self._target = parts.target
        paper = UNITS.of(parts.options) == 1
        self._costs = ExitCost(parts.cost, self._target.layers, paper=paper)
        self._deepest = self._target.layers
        if parts.target.source is not None:
            self._deepest = parts.target.source.whole
        branches = Capability.TREE in parts.target.offers
        self._chains = CHAINS.of(parts.options) == 1 or not branches
        self._requests: dict[int, RequestExits] = {}
        self._pools: dict[tuple[bool, int], ExitPool] = {}  # by kind of sampling

    @override
    def prompt(self, context: Context, states: Tensor) -> None:
        """Start from states [L, n, C] of the prompt, unless requests of its kind measured more."""
        request = self._request(context)
        if request.known.seen.any():
            return
        fresh = np.zeros_like(request.counts.table)
        for part in self._parts(states):
            logits = self._target.read(part)
            fresh += shadow_counts(logits[:-1], logits[-1], context)
        request.counts = Counts(TUNING.prompt_weight * fresh)

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Each request on its own, as if all others of the pass drafted like it."""
        requests = [self._request(context) for context in batch]
        most = TUNING.exit_longest
        depths = [min(budget.depth, budget.nodes, most) for budget in longest]
        pairs, size = list(zip(requests, depths, strict=True)), len(batch)
        undecided = [d for r, d in pairs if not r.resting and r.kept_choice(size, d) is None]
        cost = self._cost(batch, max(undecided)) if undecided else None
        return [self._budget(r, d, cost, size) for r, d in pairs]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn the draft's cost, shadow tokens of traced passes, and the exit's own tokens of others."""
        self._costs.observe(outcomes)
        for outcome in outcomes:
            request = self._request(outcome.context)
            if outcome.scores is not None and outcome.scores.states is not None:
                request.traced(self.shadows(outcome))
            else:
                request.untraced(outcome.tree, outcome.verdict.path)

    @override
    def forget(self, request: int) -> None:
        """What the request measured stays in its pool."""
        ended = self._requests.pop(request, None)
        if ended is not None:
            ended.pool.plain_gap = ended.plain_gap

    def shadows(self, outcome: Outcome) -> np.ndarray:
        """Counts [E, columns] of a traced round, of the accepted path: there the context was right."""
        assert outcome.scores is not None
        assert outcome.scores.states is not None
        path = list(outcome.verdict.path)
        judged = outcome.scores.logits[path]
        fresh = np.zeros((self._target.layers - 1, TUNING.columns))
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
                self._pools[kind] = ExitPool(Counts.empty(self._target.layers - 1))
            self._requests[context.request] = RequestExits(self._pools[kind])
        return self._requests[context.request]

    def _cost(self, batch: Sequence[Context], depth: int) -> RoundCost:
        found = self._costs.table(batch, depth).shallower(self._deepest, TOO_DEEP)
        return RoundCost(found.chains) if self._chains else found

    def _budget(
        self, request: RequestExits, depth: int, cost: RoundCost | None, batch: int
    ) -> Budget:
        if depth < 1 or request.resting:
            return Budget(0, 0)
        last = request.kept_choice(batch, depth)
        if last is not None:
            last.rounds -= 1
            return self._drafting(request, last, depth)
        if cost is None or not len(cost.chains):
            return Budget(0, 0)
        known = request.known
        if not known.seen.any():  # the drafter's usual exit gives the first counts
            return Budget(1, 1, trace=True)
        here = cost.upto(depth)
        choice, request.kept = request.choose(known, here), None
        if choice.depth == 0:
            return Budget(0, 0, trace=request.due)
        request.kept = KeptChoice(choice, known, here, batch, TUNING.choice_rounds - 1)
        return self._drafting(request, request.kept, depth)

    def _drafting(self, request: RequestExits, last: KeptChoice, depth: int) -> Budget:
        """A round of the exit that was chosen."""
        stop = request.stop = ExitStop(last.exit, last.prices, last.choice.width)
        siblings = None
        if not self._chains:
            prices = partial(last.sibling_prices, depth)
            siblings = ExitSiblings(last.exit, stop.probabilities, prices)
        return Budget(
            depth, depth, stop=stop, siblings=siblings,
            exit_layer=last.choice.exit, trace=request.due,
        )  # fmt: skip

    def _parts(self, states: Tensor) -> Iterator[Tensor]:
        """States [L, n, C] in parts whose logits fit into memory; nearly always in one."""
        width = max(1, TUNING.most_logits // (len(states) * self._target.vocab))
        return iter(torch.split(states, width, 1))
