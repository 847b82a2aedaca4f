"""Goodput lengths (SmartSpec, arXiv 2406.14066): most expected tokens per measured second.

Every step maximises over the lengths k_r >= 0 of all requests r that share a drafter

    sum_r (1 + sum_{i<=k_r} prod_{j<=i} a_rj) / (t(sum_r (k_r + 1), context) + d(max_r k_r))

with a_rj the acceptance at depth j from evaluated tokens only, t the target's measured pass and d
the measured draft. Survival never rises with depth, so admitting draft tokens of all requests in
the order of their survival visits the best allocation. k = 0 is plain decoding. For trees the unit
that is admitted is a doubling of the tree, valued by what trees of that size brought so far.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2
from typing import ClassVar

from torch import Tensor

from engine.cost import DraftCost
from engine.protocols import Budget, Context, Outcome, Parts
from engine.request import Prior

OPTIMISM = 0.8  # acceptance where nothing is known: the first rounds of a request find out
PRIOR_WEIGHT = 2.0  # evaluated tokens that optimism counts for, per depth
HISTORY_WEIGHT = 12.0  # most evaluated tokens that earlier sessions count for, per depth
DOUBT = 0.8  # factor by which each evaluated token shrinks the weight of what was only guessed
USUAL_WEIGHT = 4.0  # most evaluated tokens that the request before counts for, per depth
USUAL_DRAFTS = 4  # drafts of a request that is worth remembering
FORGETTING = 0.9  # weight of the past per evaluated token
TREE_GAIN = 0.55  # accepted tokens per doubling of a tree, before anything is known
PROBE_FIRST, PROBE_LAST = 4, 512  # plain passes before a probe, doubling while speculation loses
PROBE_LENGTH = 4


@dataclass
class _Faded:
    """A ratio of faded counts; starts from a guess that evidence overrules."""

    hits: float
    trials: float

    @property
    def value(self) -> float:
        return self.hits / self.trials

    def add(self, hit: float) -> None:
        self.fade()
        self.trials += 1
        self.hits += hit

    def fade(self) -> None:
        self.trials *= FORGETTING
        self.hits *= FORGETTING


@dataclass
class _Trace:
    """Acceptance of one request, and how long it has been plain."""

    depths: list[_Faded] = field(default_factory=list)
    sizes: dict[int, _Faded] = field(default_factory=dict)  # doublings -> accepted per pass
    scale: _Faded = field(default_factory=lambda: _Faded(PRIOR_WEIGHT, PRIOR_WEIGHT))
    asked: int = 0  # depth of the last budget
    drafts: int = 0
    plain: int = 0
    wait: int = PROBE_FIRST

    def acceptances(self, count: int) -> list[float]:
        """Acceptance at depths 1..count; what little is known of one leans on the one before."""
        found, guess = [], OPTIMISM
        for depth in range(count):
            known = self.depths[depth] if depth < len(self.depths) else _Faded(0.0, 0.0)
            weight = PRIOR_WEIGHT * DOUBT**known.trials
            guess = (weight * guess + known.hits) / (weight + known.trials)
            found.append(min(guess, 0.99))
        return found

    def note(self, accepted: int, *, refused: bool) -> None:
        """One walk: depths that it evaluated learn, what is known of deeper ones grows stale."""
        evaluated = accepted + refused
        while len(self.depths) < evaluated:
            self.depths.append(_Faded(0.0, 0.0))
        for at, depth in enumerate(self.depths, 1):
            if at <= evaluated:
                depth.add(at <= accepted)
            else:
                depth.fade()

    def tree_gain(self, doublings: int) -> float:
        """Expected accepted tokens of a tree of 2^doublings nodes."""
        guess = self.scale.value * TREE_GAIN * (doublings + 1)
        seen = self.sizes.get(doublings)
        if seen is None:
            return guess
        return (PRIOR_WEIGHT * guess + seen.hits) / (PRIOR_WEIGHT + seen.trials)

    def note_tree(self, nodes: int, accepted: int) -> None:
        """One tree that was walked."""
        doublings = round(log2(nodes))
        self.scale.add(accepted / (TREE_GAIN * (doublings + 1)))
        self.sizes.setdefault(doublings, _Faded(0.0, 0.0)).add(accepted)


@dataclass(frozen=True, slots=True)
class _Offer:
    """More nodes for one request: what they add to a pass, and what they are expected to bring."""

    rows: int
    steps: int  # total draft steps once this is admitted
    gain: float


class Goodput:
    """Length per request and round, 0 included; probes with growing intervals while off."""

    prompt_rows: ClassVar[int] = 0

    def __init__(self, parts: Parts, drafter: str) -> None:
        """Share the target's measured cost; learn the draft's own."""
        self._cost, self._drafter = parts.cost, drafter
        self._draft = DraftCost(step=parts.draft_step)
        self._usual: list[_Faded] = []  # of requests that ended
        self._traces: dict[int, _Trace] = {}

    def prompt(self, context: Context, states: Tensor) -> None:
        """Nothing is wanted of the prompt."""

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The best allocation for the whole batch under the present measurements."""
        traces = [self._trace(context) for context in batch]
        offers = [_offers(t, b) for t, b in zip(traces, longest, strict=True)]
        admitted, floor = self._admit(offers, sum(len(c.ids) for c in batch))
        budgets = []
        for trace, budget, chosen in zip(traces, longest, admitted, strict=True):
            budgets.append(_budget(trace, budget, chosen, floor))
        return budgets

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Draft cost from the call, acceptance from the nodes that the walks looked at."""
        drafting = [o for o in outcomes if o.tree.drafted]
        # a request's first draft also reads the prompt: that says nothing about the next one
        if drafting and all(self._trace(o.context).drafts for o in drafting):
            steps = max(o.tree.drafted for o in drafting)  # a tree's cost grows with its nodes
            self._draft.observe(steps, len(drafting), outcomes[0].draft_seconds)
        for outcome in outcomes:
            self._note(outcome)

    def forget(self, request: int) -> None:
        """Drop the request's trace; the costs stay, and its acceptance starts the next one."""
        trace = self._traces.pop(request, None)
        if trace is not None and trace.drafts >= USUAL_DRAFTS:
            self._usual = trace.depths

    def _trace(self, context: Context) -> _Trace:
        if context.request not in self._traces:
            prior = context.priors.get(self._drafter)
            self._traces[context.request] = _started(prior, self._usual)
        return self._traces[context.request]

    def _note(self, outcome: Outcome) -> None:
        trace, tree, path = self._trace(outcome.context), outcome.tree, outcome.verdict.path
        if not tree.drafted:
            trace.plain += trace.asked == 0  # asked for, but nothing to propose: not switched off
            return
        trace.plain = 0
        trace.drafts += 1
        trace.note(len(path) - 1, refused=bool(tree.children[path[-1]]))
        if not tree.is_chain:
            trace.note_tree(tree.drafted, len(path) - 1)

    def _admit(self, offers: list[list[_Offer]], context: int) -> tuple[list[int], float]:
        """How many offers of each request to take; the expected tokens that pay for one more row."""
        rows, steps, active, gain = len(offers), 0, 0, float(len(offers))
        taken, best = [0] * len(offers), [0] * len(offers)
        rate = best_rate = gain / self._cost.seconds(rows, context)
        best_rows = rows
        heads = [(-o[0].gain / o[0].rows, r) for r, o in enumerate(offers) if o]
        heapq.heapify(heads)
        while heads:
            _, r = heapq.heappop(heads)
            offer = offers[r][taken[r]]
            active += taken[r] == 0
            taken[r] += 1
            rows, steps, gain = rows + offer.rows, max(steps, offer.steps), gain + offer.gain
            seconds = self._cost.seconds(rows, context) + self._draft.seconds(steps, active)
            rate = gain / seconds
            if rate > best_rate:
                best, best_rate, best_rows = list(taken), rate, rows
            if taken[r] < len(offers[r]):
                following = offers[r][taken[r]]
                heapq.heappush(heads, (-following.gain / following.rows, r))
        more = self._cost.seconds(2 * best_rows, context) - self._cost.seconds(best_rows, context)
        return best, best_rate * more / best_rows


def _started(prior: Prior | None, usual: Sequence[_Faded]) -> _Trace:
    """A new request's trace; what earlier requests and sessions measured counts for a little."""
    if usual:
        shares = [USUAL_WEIGHT / max(depth.trials, USUAL_WEIGHT) for depth in usual]
        return _Trace([_Faded(s * d.hits, s * d.trials) for s, d in zip(shares, usual, strict=True)])
    trace = _Trace()
    for evaluated, accepted in prior.depths if prior else ():
        if evaluated <= 0:
            break
        weight = min(evaluated, HISTORY_WEIGHT)
        share = min(max(accepted / evaluated, 0.05), 0.98)  # never certain, never hopeless
        trace.depths.append(_Faded(weight * share, weight))
    return trace


def _is_tree(longest: Budget) -> bool:
    return longest.nodes > longest.depth


def _offers(trace: _Trace, longest: Budget) -> list[_Offer]:
    """What one request could draft, cheapest and surest first."""
    if not _is_tree(longest):
        reach, offers = 1.0, []
        rates = trace.acceptances(min(longest.depth, longest.nodes))
        for depth, rate in enumerate(rates, 1):
            reach *= rate
            offers.append(_Offer(1, depth, reach))
        return offers
    offers, before, nodes, doublings = [], 0.0, 0, 0
    while longest.depth > 0 and 2**doublings <= longest.nodes:
        gain = max(trace.tree_gain(doublings), before)
        offers.append(_Offer(2**doublings - nodes, 2**doublings, gain - before))
        before, nodes, doublings = gain, 2**doublings, doublings + 1
    return offers


def _budget(trace: _Trace, longest: Budget, chosen: int, floor: float) -> Budget:
    """The budget for ``chosen`` offers; while off, now and then a short probe."""
    if chosen:
        trace.wait = PROBE_FIRST
    elif trace.plain >= trace.wait and longest.depth > 0:
        trace.wait = min(2 * trace.wait, PROBE_LAST)
        chosen = min(PROBE_LENGTH, longest.depth)
    trace.asked = chosen
    if not _is_tree(longest):
        return Budget(chosen, chosen, floor=min(floor, 0.5))
    nodes = min(2 ** (chosen - 1), longest.nodes) if chosen else 0
    return Budget(min(longest.depth, nodes), nodes, floor=min(floor, 0.5))
