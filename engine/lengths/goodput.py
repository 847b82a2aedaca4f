"""Goodput lengths (SmartSpec, arXiv 2406.14066): most expected tokens per measured second.

Every step maximises over the lengths k_r >= 0 of all requests r that share a drafter

    sum_r (1 + sum_{i<=k_r} prod_{j<=i} a_rj) / (t(sum_r (k_r + 1), context) + d(max_r k_r))

with a_rj the acceptance at depth j from evaluated tokens only, t the target's measured pass and d
the measured draft. Survival never rises with depth, so for each limit of max_r k_r, admitting draft
tokens of all requests in the order of their survival visits the best allocation. k = 0 is plain decoding. For trees the unit
that is admitted is a doubling of the tree, valued by what trees of that size brought so far. A
drafter that tells likely nodes from unlikely ones is only told whether to draft, and what a node must
bring: how many do that differs from round to round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, zip_longest
from math import log2
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.cost import DraftCost
from engine.lengths.acceptance import MEMORY, POOL_MEMORY, Depths, Faded, pooled, shrunk
from engine.protocols.drafting import Budget, Context, Outcome, Parts, Rule
from engine.request import Prior

GUESS_WEIGHT = 2.0  # trees that a guess of their gain counts for
HISTORY_WEIGHT = 36.0  # most evaluated tokens that earlier sessions count for, per depth
HISTORY_MEMORY = 0.9  # what a walk leaves of it
FORGETTING = 0.9  # weight of the past per tree
TREE_GAIN = 0.55  # accepted tokens per doubling of a tree, before anything is known
LEAST_FLOOR = 0.02  # where rows are nearly free: a node still takes a place in the draft's waves
PROBE_FIRST, PROBE_LAST = 4, 512  # plain passes before a probe, doubling while speculation loses
PROBE_LENGTH = 4  # of a request that runs alone; beside others a probe takes no steps of its own


@dataclass
class _Trace:
    """Acceptance of one request, and how long it has been plain."""

    depths: Depths = field(default_factory=lambda: Depths(MEMORY))
    earlier: list[Faded] = field(default_factory=list)  # depths in earlier sessions
    sizes: dict[int, Faded] = field(default_factory=dict)  # doublings -> accepted per pass
    scale: Faded = field(default_factory=lambda: Faded(GUESS_WEIGHT, GUESS_WEIGHT))
    asked: int = 0  # depth of the last budget
    drafts: int = 0
    plain: int = 0
    wait: int = PROBE_FIRST

    def tree_gain(self, doublings: int) -> float:
        """Expected accepted tokens of a tree of 2^doublings nodes."""
        guess = self.scale.hits / self.scale.trials * TREE_GAIN * (doublings + 1)
        seen = self.sizes.get(doublings)
        if seen is None:
            return guess
        return (GUESS_WEIGHT * guess + seen.hits) / (GUESS_WEIGHT + seen.trials)

    def note(self, accepted: int, *, refused: bool) -> None:
        """One walk; what earlier sessions say counts for less from then on."""
        self.depths.note(accepted, refused=refused)
        for past in self.earlier:
            past.fade(HISTORY_MEMORY)

    @property
    def known(self) -> Depths:
        """This request's depths and what is left of earlier sessions'."""
        if not self.earlier:
            return self.depths
        both = zip_longest(self.depths.counts, self.earlier, fillvalue=Faded())
        counts = [Faded(own.hits + past.hits, own.trials + past.trials) for own, past in both]
        return Depths(MEMORY, counts)

    def note_tree(self, nodes: int, accepted: int) -> None:
        """One tree that was walked."""
        doublings = round(log2(nodes))
        self.scale.add(accepted / (TREE_GAIN * (doublings + 1)), FORGETTING)
        self.sizes.setdefault(doublings, Faded()).add(accepted, FORGETTING)


@dataclass(frozen=True, slots=True)
class _Offer:
    """More nodes for one request: what they add to a pass, and what they are expected to bring."""

    rows: int
    steps: int  # total draft steps once this is admitted
    gain: float


@dataclass(frozen=True, slots=True)
class _Queue:
    """Offers as columns [n]: whose, and what they are."""

    requests: NDArray[np.int64]
    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    gains: NDArray[np.float64]


class Goodput:
    """Length per request and round, 0 included; probes with growing intervals while off."""

    steers_by: ClassVar[frozenset[Rule]] = frozenset()
    prompt_rows: ClassVar[int] = 0

    def __init__(self, parts: Parts, drafter: str) -> None:
        """Share the target's measured cost; learn the draft's own."""
        self._cost, self._drafter = parts.cost, drafter
        self._selective = Rule.FLOOR in parts.heeds  # it leaves out nodes
        self._draft = DraftCost(step=parts.draft_step)
        self._pool = Depths(POOL_MEMORY)
        self._traces: dict[int, _Trace] = {}

    def prompt(self, context: Context, states: Tensor) -> None:
        """Nothing is wanted of the prompt."""

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The best allocation for the whole batch under the present measurements."""
        traces = [self._trace(context) for context in batch]
        pool = pooled(self._pool, max(budget.depth for budget in longest))
        offers = [_offers(t, b, pool) for t, b in zip(traces, longest, strict=True)]
        admit = self._admit_alone if len(batch) == 1 else self._admit
        context = sum(len(c.ids) for c in batch)
        admitted, rate, rows = admit(offers, context)
        floor = rate * self._row(rows, context)
        probe = PROBE_LENGTH if len(batch) == 1 else max(1, min(PROBE_LENGTH, *admitted))
        least = self._cost.hidden // len(batch) - 1
        triples = zip(traces, longest, admitted, strict=True)
        budgets = [
            _budget(t, budget, (chosen, probe, least), floor) for t, budget, chosen in triples
        ]
        if self._selective and self._cost.hidden <= 1:
            pace = rate * self._cost.seconds(len(batch), context) / len(batch)
            widest = max(budget.nodes for budget in longest)
            prices = self._cost.prices(max(1.0, pace), widest, len(batch), context)
            return [_open(b, most, prices) for b, most in zip(budgets, longest, strict=True)]
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
        """Drop the request's trace; the costs stay, and its part in the pool."""
        self._traces.pop(request, None)

    def _trace(self, context: Context) -> _Trace:
        if context.request not in self._traces:
            self._traces[context.request] = _started(context.priors.get(self._drafter))
        return self._traces[context.request]

    def _note(self, outcome: Outcome) -> None:
        trace, tree, path = self._trace(outcome.context), outcome.tree, outcome.verdict.path
        if not tree.drafted:
            trace.plain += trace.asked == 0  # asked for, but nothing to propose: not switched off
            return
        trace.plain = 0
        trace.drafts += 1
        refused = bool(tree.children[path[-1]])
        trace.note(len(path) - 1, refused=refused)
        self._pool.note(len(path) - 1, refused=refused)
        if not tree.is_chain:
            trace.note_tree(tree.drafted, len(path) - 1)

    def _admit(self, offers: list[list[_Offer]], context: int) -> tuple[list[int], float, int]:
        """How many offers of each request to take; then tokens per second, and rows, of the pass.

        Requests draft in step, so the deepest sets the draft's time: every limit of it is a row of
        the tables below, every number of admitted offers a column.
        """
        requests, drafting = len(offers), sum(bool(own) for own in offers)
        queue = _queue(offers)
        limits = np.unique(queue.steps)
        allowed = queue.steps <= limits[:, None]
        widths = requests + np.cumsum(allowed * queue.rows, axis=1)
        gains = requests + np.cumsum(allowed * queue.gains, axis=1)
        drafts = np.array([self._draft.seconds(int(limit), drafting) for limit in limits])
        passes = self._cost.each(np.arange(requests, requests + int(queue.rows.sum()) + 1), context)
        rates = gains / (passes[widths - requests] + drafts[:, None])
        plain = requests / float(passes[0])
        if rates.size == 0 or rates.max() <= plain:
            return [0] * requests, plain, requests
        limit, last = divmod(int(rates.argmax()), len(queue.steps))
        admitted = queue.requests[: last + 1][allowed[limit, : last + 1]]
        taken = np.bincount(admitted, minlength=requests)
        return taken.tolist(), float(rates[limit, last]), int(widths[limit, last])

    def _admit_alone(
        self, offers: list[list[_Offer]], context: int
    ) -> tuple[list[int], float, int]:
        """The same for one request, whose offers stand in order already: all lengths at once."""
        own = offers[0]
        widths = 1 + np.cumsum([0, *(offer.rows for offer in own)])
        gains = 1 + np.cumsum([0.0, *(offer.gain for offer in own)])
        steps = np.array([0, *(offer.steps for offer in own)])
        rates = gains / (self._cost.each(widths, context) + self._draft.each(steps))
        best = int(rates.argmax())
        return [best], float(rates[best]), int(widths[best])

    def _row(self, rows: int, context: int) -> float:
        """Seconds of one more row in a pass of so many: what it must bring, at a rate of tokens."""
        more = self._cost.seconds(2 * rows, context) - self._cost.seconds(rows, context)
        return more / rows


def _queue(offers: list[list[_Offer]]) -> _Queue:
    """All offers of all requests in the order in which they are worth a row."""
    flat = [(r, offer) for r, own in enumerate(offers) for offer in own]
    worth = [
        value for own in offers for value in accumulate((o.gain / o.rows for o in own), min)
    ]  # never more than the offer before it, which must be taken first
    order = np.argsort(-np.array(worth), kind="stable")
    return _Queue(
        requests=np.array([r for r, _ in flat], np.int64)[order],
        rows=np.array([o.rows for _, o in flat], np.int64)[order],
        steps=np.array([o.steps for _, o in flat], np.int64)[order],
        gains=np.array([o.gain for _, o in flat], np.float64)[order],
    )


def _started(prior: Prior | None) -> _Trace:
    """A new request's trace; what earlier sessions measured counts for a little."""
    trace = _Trace()
    for evaluated, accepted in prior.depths if prior else ():
        if evaluated <= 0:
            break
        weight = min(evaluated, HISTORY_WEIGHT)
        share = min(max(accepted / evaluated, 0.05), 0.98)  # never certain, never hopeless
        trace.earlier.append(Faded(weight * share, weight))
    return trace


def _is_tree(longest: Budget) -> bool:
    return longest.nodes > longest.depth


def _offers(trace: _Trace, longest: Budget, pool: Sequence[float]) -> list[_Offer]:
    """What one request could draft, cheapest and surest first."""
    if not _is_tree(longest):
        reach, offers = 1.0, []
        rates = shrunk(trace.known, pool[: min(longest.depth, longest.nodes)])
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


def _budget(trace: _Trace, longest: Budget, lengths: tuple[int, int, int], floor: float) -> Budget:
    """The budget for the offers that were (admitted, of a probe); while off, probes now and then.

    A tree has at least the third of ``lengths`` nodes: those that reading weights hides.
    """
    chosen, probe, least = lengths
    if chosen:
        trace.wait = PROBE_FIRST
    elif trace.plain >= trace.wait and longest.depth > 0:
        trace.wait = min(2 * trace.wait, PROBE_LAST)
        chosen = min(probe, longest.depth)
    trace.asked = chosen
    if not _is_tree(longest):
        return Budget(chosen, chosen, floor=min(floor, 0.5))
    nodes = min(max(2 ** (chosen - 1), least), longest.nodes) if chosen else 0
    return Budget(min(longest.depth, nodes), nodes, floor=min(floor, 0.5))


def _open(budget: Budget, longest: Budget, prices: tuple[float, ...]) -> Budget:
    """As many nodes as are worth their rows, if any were admitted."""
    if not budget.nodes or not _is_tree(longest):
        return budget
    floor = max(budget.floor, LEAST_FLOOR)
    return Budget(longest.depth, longest.nodes, floor=floor, prices=prices)
