"""Dynamic exit (DEL, arXiv 2504.05598): which early layer drafts, and when its draft ends.

After a pass the states of every layer are known, so one head product over them tells what each
layer would have drafted ("shadow tokens") wherever the context was right. Decayed counts give each
exit l its acceptance alpha_l, and before every round DEL maximises the tokens per layer run

    TPL(l, d) = (1 - alpha_l^(d+1)) / (1 - alpha_l) / (d l + L)

over exits and depths; d = 0 is plain decoding. The d of the maximum only prices an exit: how long
a draft gets is decided token by token, from the draft's own confidence.

Where this departs from the paper, and why:

* The denominator is seconds of this machine; the paper's units only until something is measured.
* A draft goes on while the next token is expected to bring more than the present rate would in the
  time that it takes. The paper's threshold tau_l, half way between the mean confidence of matches
  and of misses, knows neither how far the draft has got nor what a token costs. (Valuing exits by
  drafts that end so, too, told their rates better, but chose no better ones.)
* Where a pass takes as long with a few more rows, an exit's next likeliest tokens stand beside those
  of its chain, most beside the least sure, and the exit is chosen with them in mind: of pocket's first
  layer the likeliest token holds 37 times in 100 in word problems, one of the four likeliest 63 times.
* A request's counts lean on those of all requests: twenty tokens of seven exits are mostly noise.
* The head product is not free. Rounds without it learn from the exit that drafted, and how rare it
  is follows from how often it makes the choice clearly better. While speculation loses nothing is
  drafted at all: ever more rarely a plain pass is traced, the first one of an answer the later the
  more rarely the answer before was looked at, and luck is followed up at once, but not for long. (An
  exit that is right more often than not may still be too dear: every pass was traced then.)
* A choice is believed for a few rounds, unless layers were looked at: finding it takes 0.3 ms.
* Prompts count for little: how well early layers follow a question says little about its answer.
  (Of rows where the model is as sure as in an answer they say it well, and it chose no better.)
* Where candidates are drawn, alpha_l is sum_x min(p_l(x), p_L(x)), the exact acceptance of a draw.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import gt
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engine.draft_length.exit_rules import Exit, ExitSiblings, ExitStop, Price
from engine.draft_length.exit_value import (
    ExitChoice,
    ExitCost,
    ExitOdds,
    RoundCost,
    best_exit,
    best_rate,
)
from engine.draft_length.shadow_tokens import (
    BINS,
    COLUMNS,
    OMEGA,
    POOL_OMEGA,
    Counts,
    bin_of,
    shadow_counts,
)
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, StopRule
from engine.interfaces.target import Capability
from engine.speculation.tree import DraftTree

LONGEST = 18  # most tokens of one draft, as in the paper
PROMPT_ROWS, PROMPT_WEIGHT = 32, 1 / 16  # a prompt row counts for this much of an answer's
TRACE_GAP, PROBE_GAP = 16, 512  # most rounds from one trace to the next: speculating, and plain
FIRST_GAP = 8  # most rounds before the first trace of an answer
FOLLOWED = 2  # traces in a row for the luck of the one before: at 4 plain decoding lost more
NEWS = (
    1.03  # times the last exit's rate that another must bring, or layers are looked at less often
)
BELIEVED = 4  # rounds of a choice, its first one among them
CHUNK = 2**24  # most logits held at once
TOO_DEEP = 1e9  # passes; of an exit above the layers that stay in memory


@dataclass
class Believed:
    """A choice that drafts, and what it rests on; for some rounds it is not made anew."""

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
        """Tokens that drafting the n-th must bring; of a width for which there is no room any more none."""
        took = self.cost.wide(self.choice.width)[self.choice.exit - 1]
        paid: list[float] = (self.choice.rate * np.diff(took[np.isfinite(took)])).tolist()
        return paid

    def beside(self, most: int, drafted: int) -> np.ndarray:
        """Tokens that 0, 1, .. candidates beside a chain of so many must bring, of ``most`` in all."""
        return self.choice.rate * self.cost.upto(most).beside(self.choice.exit, drafted)


@dataclass
class _Pool:
    """What all requests of one kind of sampling taught."""

    counts: Counts
    rest: int = 1  # of the newest answer to end


@dataclass
class _Request:
    """What one request's layers are worth, and when they are looked at next."""

    counts: Counts  # its own
    pool: "_Pool"  # of all requests of its kind of sampling
    choice: ExitChoice | None = None  # of the last round; None: there was nothing to choose from
    believed: Believed | None = None
    stop: ExitStop | None = None
    fresh: np.ndarray | None = None  # evidence of the last round, if it was traced
    gap: int = 1
    rest: int = 1  # the gap once luck is over: plain decoding goes on, and nothing has changed that
    followed: int = 0  # traces in a row that luck was followed with
    since: int = 0  # rounds since the last trace

    @property
    def due(self) -> bool:
        """Whether this round is traced."""
        return self.since + 1 >= self.gap

    @property
    def resting(self) -> bool:
        """Plain, and nothing has happened that could change it."""
        off = self.choice is not None and self.choice.depth == 0
        return off and self.fresh is None and not self.due

    def belief(self, batch: int, depth: int) -> Believed | None:
        """The last choice, if it holds in this round too, in a pass of ``batch`` requests."""
        last = self.believed
        if last is None or last.rounds < 1 or self.fresh is not None:
            return None
        return last if last.batch == batch and last.choice.depth <= depth else None

    @property
    def known(self) -> Counts:
        """What is to be expected of its exits."""
        return self.counts.leaning(self.pool.counts)

    def choose(self, known: Counts, cost: RoundCost) -> ExitChoice:
        """The choice for a round that costs so much; sets when the layers are traced next."""
        odds = ExitOdds(known.alpha, known.caught)
        choice = best_exit(odds, cost)
        if self.fresh is not None and self.choice is not None:
            kept = best_rate(self.choice.exit, odds, cost)
            self.gap = self._next_gap(self.choice, choice, kept, self.fresh)
        self.choice, self.fresh = choice, None
        return choice

    def traced(self, fresh: np.ndarray) -> None:
        """All layers' evidence [E, COLUMNS] of one round."""
        self.counts = self.counts.after(fresh, OMEGA)
        self.pool.counts = self.pool.counts.after(fresh, POOL_OMEGA)
        self.fresh, self.stop, self.since = fresh, None, 0

    def untraced(self, tree: DraftTree, path: Sequence[int]) -> None:
        """The exit's own tokens: a chain whose first ones were right, and candidates beside it."""
        self.since += 1
        if self.choice is None or self.stop is None or not self.stop.heard:
            return
        heard = self.stop.heard
        accepted = sum(0 < node <= len(heard) for node in path)
        fresh = np.zeros(COLUMNS)
        for place, confidence in enumerate(heard[: accepted + 1]):
            missed = int(place >= accepted)
            fresh[missed * BINS + bin_of(confidence)] += 1.0
            fresh[2 * BINS + missed] += confidence
        if accepted < len(heard):
            beside = [node for node in tree.children[accepted] if node > len(heard)]
            found, sought = np.split(fresh[2 * BINS + 2 :], 2)
            found[: len(beside)] = [node == path[-1] for node in beside]
            sought[: len(beside)] = 1.0
        exit_layer = self.choice.exit
        self.counts = self.counts.after_exit(exit_layer, fresh, OMEGA)
        self.pool.counts = self.pool.counts.after_exit(exit_layer, fresh, POOL_OMEGA)
        self.stop = None

    def _next_gap(self, before: ExitChoice, now: ExitChoice, kept: float, fresh: np.ndarray) -> int:
        """Rarer when nothing new was seen; at once when plain decoding missed something.

        ``kept`` is the rate of the exit before, as known now: a change for little more is no news.
        """
        if now.depth == 0:
            matches, misses = fresh[now.exit - 1, : 2 * BINS].reshape(2, BINS).sum(1)
            if matches > misses and self.followed < FOLLOWED:
                self.followed += 1
                return 1
            self.followed, self.rest = 0, min(2 * self.rest, PROBE_GAP)
            return self.rest
        self.followed, self.rest = 0, 1
        if before.depth == 0:
            return 1
        settled = now.rate < NEWS * kept
        return min(2 * self.gap, TRACE_GAP) if settled else max(1, self.gap // 2)


class DynamicExit:
    """Exit layer and length per request and round; plain, with rare traced passes, where it loses."""

    steers_by: ClassVar[frozenset[StopRule]] = frozenset({StopRule.CHANCES, StopRule.EXIT})
    prompt_rows: ClassVar[int] = PROMPT_ROWS

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Options: ``units`` 1 takes the paper's denominator, ``threshold`` 1 its stop rule, ``chains`` 1 no trees."""
        self._target = parts.target
        paper = parts.options.get("units", 0.0) == 1
        self._costs = ExitCost(parts.cost, self._target.layers, paper=paper)
        self._deepest = self._target.layers
        if parts.target.source is not None:
            self._deepest = parts.target.source.whole
        self._threshold = parts.options.get("threshold", 0.0) == 1
        branches = Capability.TREE in parts.target.offers and not self._threshold
        self._chains = parts.options.get("chains", 0.0) == 1 or not branches
        self._requests: dict[int, _Request] = {}
        self._pools: dict[tuple[bool, int], _Pool] = {}  # by kind of sampling

    def prompt(self, context: Context, states: Tensor) -> None:
        """Warm up on states [L, n, C], unless earlier requests of its kind tell more than that."""
        request = self._request(context)
        if request.known.seen.any():
            return
        fresh = np.zeros_like(request.counts.table)
        for part in self._columns(states):
            logits = self._target.read(part)
            fresh += shadow_counts(logits[:-1], logits[-1], context)
        request.counts = Counts(PROMPT_WEIGHT * fresh)

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Every request alone, in a pass that the others share and make as long as it does."""
        requests = [self._request(context) for context in batch]
        depths = [min(budget.depth, budget.nodes, LONGEST) for budget in longest]
        pairs, many = list(zip(requests, depths, strict=True)), len(batch)
        undecided = [d for r, d in pairs if not r.resting and r.belief(many, d) is None]
        cost = self._cost(batch, max(undecided)) if undecided else None
        return [self._budget(r, d, cost, many) for r, d in pairs]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Draft cost from the call; shadow tokens of traced passes, the exit's own of the others."""
        self._costs.observe(outcomes)
        for outcome in outcomes:
            request = self._request(outcome.context)
            if outcome.scores is not None and outcome.scores.states is not None:
                request.traced(self._shadows(outcome))
            else:
                request.untraced(outcome.tree, outcome.verdict.path)

    def forget(self, request: int) -> None:
        """What the request taught stays in its pool."""
        ended = self._requests.pop(request, None)
        if ended is not None:
            ended.pool.rest = ended.rest

    def _request(self, context: Context) -> _Request:
        if context.request not in self._requests:
            kind = (context.draws, round(2 * context.sampling.temperature))
            empty = Counts.empty(self._target.layers - 1)
            pool = self._pools.setdefault(kind, _Pool(empty))
            rest = min(pool.rest, FIRST_GAP)
            self._requests[context.request] = _Request(empty, pool, gap=rest, rest=rest)
        return self._requests[context.request]

    def _cost(self, batch: Sequence[Context], depth: int) -> RoundCost:
        found = self._costs.table(batch, depth).shallower(self._deepest, TOO_DEEP)
        return RoundCost(found.chains) if self._chains else found

    def _budget(self, request: _Request, depth: int, cost: RoundCost | None, batch: int) -> Budget:
        if depth < 1 or request.resting:
            return Budget(0, 0)
        last = request.belief(batch, depth)
        if last is not None:
            last.rounds -= 1
            return self._drafting(request, last, depth)
        if cost is None or not len(cost.chains):
            return Budget(0, 0)
        known = request.known
        if not known.seen.any():  # the drafter's usual exit finds out
            return Budget(1, 1, trace=True)
        here = cost.upto(depth)
        choice, request.believed = request.choose(known, here), None
        if choice.depth == 0:
            return Budget(0, 0, trace=request.due)
        request.believed = Believed(choice, known, here, batch, BELIEVED - 1)
        return self._drafting(request, request.believed, depth)

    def _drafting(self, request: _Request, last: Believed, depth: int) -> Budget:
        """A round of the exit that was chosen."""
        stop = request.stop = self._stop(last)
        beside = (
            None
            if self._chains
            else ExitSiblings(last.exit, stop.heard, partial(last.beside, depth))
        )
        return Budget(
            depth, depth, stop=stop, siblings=beside,
            exit_layer=last.choice.exit, trace=request.due,
        )  # fmt: skip

    def _stop(self, last: Believed) -> ExitStop:
        if self._threshold:
            return ExitStop(partial(gt, float(last.known.tau[last.choice.exit - 1])))
        return ExitStop(Price(last.exit, last.prices, last.choice.width))

    def _shadows(self, outcome: Outcome) -> np.ndarray:
        """Evidence of every exit where the context was right: at the accepted path, root included."""
        assert outcome.scores is not None
        assert outcome.scores.states is not None
        path = list(outcome.verdict.path)
        judged = outcome.scores.logits[path]
        fresh = np.zeros((self._target.layers - 1, COLUMNS))
        at = 0
        for part in self._columns(outcome.scores.states[:-1, path]):
            rows = judged[at : at + part.shape[1]]
            fresh += shadow_counts(self._target.read(part), rows, outcome.context)
            at += part.shape[1]
        return fresh

    def _columns(self, states: Tensor) -> Iterator[Tensor]:
        """States [L, n, C] in parts whose logits fit into memory; nearly always in one."""
        width = max(1, CHUNK // (len(states) * self._target.vocab))
        return iter(torch.split(states, width, 1))
