"""Goodput lengths (SmartSpec, arXiv 2406.14066): most expected tokens per measured second.

Every step maximises over the lengths k_r >= 0 of all requests r that share a drafter

    sum_r (1 + sum_{i<=k_r} prod_{j<=i} a_rj) / (t(sum_r (k_r + 1), context) + d(max_r k_r, sum_r k_r))

with a_rj the acceptance at depth j from evaluated tokens only, t the target's measured pass and d
the measured draft: its steps, and the rows in them. Survival never rises with depth, so for each limit
of max_r k_r, admitting draft tokens of all requests in the order of their survival visits the best
allocation. k = 0 is plain decoding. For trees the unit that is admitted is a doubling of the tree,
valued by what trees of that size brought so far. A drafter that tells likely nodes from unlikely ones
is only told whether to draft, and what a node must bring: how many do that differs from round to
round. So it is with chains whose drafter says how likely each token is: averages admit them, and their
own chances say where they stop (``engine.draft_length.stop_threshold``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise, zip_longest
from math import log2
from typing import NamedTuple

from typing_extensions import override

from engine.draft_length.acceptance import (
    MEMORY,
    POOL_MEMORY,
    DecayedCounts,
    DepthAcceptance,
    pooled,
    shrunk,
)
from engine.draft_length.stop_threshold import ConfidenceStop, StopThreshold
from engine.interfaces.drafter import (
    Budget,
    Context,
    DrafterResources,
    DraftLength,
    Outcome,
    Stop,
    StopRule,
)
from engine.request import Prior
from engine.statistics.pass_cost import DraftCost

GUESS_WEIGHT = 2.0  # trees that a guess of their gain counts for
HISTORY_WEIGHT = 36.0  # most evaluated tokens that earlier sessions count for, per depth
HISTORY_MEMORY = 0.9  # what a walk leaves of it
FORGETTING = 0.9  # weight of the past per tree
TREE_GAIN = 0.55  # accepted tokens per doubling of a tree, before anything is known
LEAST_FLOOR = 0.02  # where rows are nearly free: a node still takes a place in the draft's waves
PROBE_FIRST, PROBE_LAST = 4, 512  # plain passes before a probe, doubling while speculation loses
SHORT = 8  # tokens of a chain that ends by itself, when it is asked whether to draft
BELIEVED = 3  # rounds between two questions whether to draft, each of which takes 0.1 ms
PROBE_LENGTH = 4  # of a request that runs alone; beside others a probe takes no steps of its own


@dataclass
class _Trace:
    """Acceptance of one request, and how long it has been plain."""

    depths: DepthAcceptance = field(default_factory=lambda: DepthAcceptance(MEMORY))
    earlier: list[DecayedCounts] = field(default_factory=list)  # depths in earlier sessions
    sizes: dict[int, DecayedCounts] = field(default_factory=dict)  # doublings -> accepted per pass
    scale: DecayedCounts = field(default_factory=lambda: DecayedCounts(GUESS_WEIGHT, GUESS_WEIGHT))
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
    def known(self) -> DepthAcceptance:
        """This request's depths and what is left of earlier sessions'."""
        if not self.earlier:
            return self.depths
        both = zip_longest(self.depths.counts, self.earlier, fillvalue=DecayedCounts())
        counts = [
            DecayedCounts(own.hits + past.hits, own.trials + past.trials) for own, past in both
        ]
        return DepthAcceptance(MEMORY, counts)

    def note_tree(self, nodes: int, accepted: int) -> None:
        """One tree that was walked."""
        doublings = round(log2(nodes))
        self.scale.add(accepted / (TREE_GAIN * (doublings + 1)), FORGETTING)
        self.sizes.setdefault(doublings, DecayedCounts()).add(accepted, FORGETTING)


class _Offer(NamedTuple):
    """More nodes for one request: what they add to a pass, and what they are expected to bring."""

    rows: int
    steps: int  # total draft steps once this is admitted
    gain: float


class Goodput(DraftLength):
    """Length per request and round, 0 included; probes with growing intervals while off."""

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Share the target's measured cost; learn the draft's own."""
        self._cost, self._drafter = parts.cost, drafter
        self._selective = StopRule.FLOOR in parts.stop_rules  # it leaves out nodes
        self._telling = StopRule.CHANCES in parts.stop_rules  # it says how likely its tokens are
        self._draft = DraftCost(step=parts.step_seconds)
        self._pool = DepthAcceptance(POOL_MEMORY)
        self._traces: dict[int, _Trace] = {}
        self._rate = 0.0  # tokens per second of the last allocation
        self._on: tuple[int, ...] = ()  # the batch, if all of it drafted when that was last asked
        self._believed = 0  # rounds for which that still counts
        self._off: tuple[int, ...] = ()  # the batch, if none of it drafted when that was last asked
        self._resting = 0  # rounds for which that still counts

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The best allocation for the whole batch; chains that tell their chances end by them."""
        if self._telling and not any(_is_tree(budget) for budget in longest):
            return self.ending(batch, longest, _unsure)
        return self._allotted(batch, longest)

    def ending(
        self,
        batch: Sequence[Context],
        longest: Sequence[Budget],
        stop: Callable[[Context, StopThreshold], Stop],
    ) -> list[Budget]:
        """Chains of the requests that draft, as long as they may be, each with a ``stop`` of its own."""
        decided = self._drafts(batch, longest)
        if not any(decided):
            return [Budget(0, 0)] * len(batch)
        reach = max(budget.depth for budget in longest)
        floors = self._floors(len(batch), sum(decided), reach)
        return [
            replace(most, stop=stop(context, floors)) if drafts and most.depth else Budget(0, 0)
            for context, most, drafts in zip(batch, longest, decided, strict=True)
        ]

    def _drafts(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[bool]:
        """Whether each request drafts at all; where all do twice in a row, that is believed a while.

        Not after the first time, which may be a probe.
        """
        numbers = tuple([context.request for context in batch])
        if self._on == numbers and self._believed > 0:
            self._believed -= 1
            return [True] * len(batch)
        short = [Budget(min(b.depth, SHORT), min(b.nodes, SHORT)) for b in longest]
        decided = [budget.depth > 0 for budget in self._allotted(batch, short)]
        self._believed = BELIEVED if self._on == numbers and all(decided) else 0
        self._on = numbers if all(decided) else ()
        return decided

    def _allotted(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The best allocation for the whole batch under the present measurements.

        A batch none of which drafted twice in a row is not asked again for a while: nothing is learnt
        meanwhile, and where a pass takes a millisecond the question takes a tenth of it.
        """
        numbers = tuple([context.request for context in batch])
        traces = [self._trace(context) for context in batch]
        due = any(trace.plain >= trace.wait for trace in traces)
        if self._off == numbers and self._resting > 0 and not due:
            self._resting -= 1
            return [Budget(0, 0)] * len(batch)
        budgets = self._judged(batch, longest, traces)
        off = not any(budget.nodes for budget in budgets)
        self._resting = BELIEVED if off and self._off == numbers else 0
        self._off = numbers if off else ()
        return budgets

    def _judged(
        self, batch: Sequence[Context], longest: Sequence[Budget], traces: Sequence[_Trace]
    ) -> list[Budget]:
        """What pays, and a probe where nothing did for long enough."""
        pool = pooled(self._pool, max(budget.depth for budget in longest))
        offers = [_offers(t, b, pool) for t, b in zip(traces, longest, strict=True)]
        context = sum(len(c.ids) for c in batch)
        admitted, rate, rows = self._admit(offers, context)
        self._rate = rate
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

    def _floors(self, requests: int, drafting: int, longest: int) -> StopThreshold:
        """Of the chains of one round, where so many of the requests draft, up to ``longest`` tokens."""
        widths = range(2 * requests, (longest + 2) * requests + 1, requests)
        seconds = self._cost.each(widths)
        rows = [(more - less) / requests for less, more in pairwise(seconds)]
        return StopThreshold(self._rate, rows, self._draft.parts(), drafting)

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Draft cost from the call, acceptance from the nodes that the walks looked at."""
        drafting = [o for o in outcomes if o.tree.drafted]
        # a request's first draft also reads the prompt: that says nothing about the next one
        if drafting and all(self._trace(o.context).drafts for o in drafting):
            drafted = [o.tree.drafted for o in drafting]  # a tree's cost grows with its nodes
            self._draft.observe(max(drafted), sum(drafted), outcomes[0].draft_seconds)
        for outcome in outcomes:
            self._note(outcome)

    @override
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

        Requests draft in step, so the deepest sets the draft's time: under every limit of it offers
        are admitted one after the other. Plain Python: a round has a handful of them.
        """
        requests = len(offers)
        queue = _queue(offers)
        limits = sorted({offer.steps for _, offer in queue})
        widths = _widths(queue, limits, requests)
        passes = dict(zip(widths, self._cost.each(widths, context), strict=True))
        best, last, rows, deepest = requests / passes[requests], 0, requests, 0
        start, step, row = self._draft.parts()
        for limit in limits:
            width, tokens, steps_seconds = requests, float(requests), start + step * limit
            for at, (_, (more, steps, gain)) in enumerate(queue, 1):
                if steps <= limit:
                    width += more
                    tokens += gain
                    rate = tokens / (passes[width] + steps_seconds + row * (width - requests))
                    if rate > best:
                        best, last, rows, deepest = rate, at, width, limit
        taken = [0] * requests
        for request, offer in queue[:last]:
            taken[request] += offer.steps <= deepest
        return taken, best, rows

    def _row(self, rows: int, context: int) -> float:
        """Seconds of one more row in a pass of so many: what it must bring, at a rate of tokens."""
        more = self._cost.seconds(2 * rows, context) - self._cost.seconds(rows, context)
        return more / rows


def _queue(offers: list[list[_Offer]]) -> list[tuple[int, _Offer]]:
    """All offers of all requests, with whose they are, in the order in which they are worth a row.

    None counts for more than the one before it, which must be taken first.
    """
    if len(offers) == 1:
        return [(0, offer) for offer in offers[0]]
    worth = [
        (value, request, offer)
        for request, own in enumerate(offers)
        for value, offer in zip(accumulate((o.gain / o.rows for o in own), min), own, strict=True)
    ]
    worth.sort(key=lambda entry: -entry[0])
    return [(request, offer) for _, request, offer in worth]


def _widths(
    queue: Sequence[tuple[int, _Offer]], limits: Sequence[int], requests: int
) -> Sequence[int]:
    """Rows of all passes that admitting the queue comes by, under every limit of draft steps."""
    if all(offer.rows == 1 for _, offer in queue):
        return range(requests, requests + len(queue) + 1)
    reached = {requests}
    for limit in limits:
        rows = (offer.rows for _, offer in queue if offer.steps <= limit)
        reached.update(accumulate(rows, initial=requests))
    return sorted(reached)


def _started(prior: Prior | None) -> _Trace:
    """A new request's trace; what earlier sessions measured counts for a little."""
    trace = _Trace()
    for evaluated, accepted in prior.depths if prior else ():
        if evaluated <= 0:
            break
        weight = min(evaluated, HISTORY_WEIGHT)
        share = min(max(accepted / evaluated, 0.05), 0.98)  # never certain, never hopeless
        trace.earlier.append(DecayedCounts(weight * share, weight))
    return trace


def _unsure(_: Context, floors: StopThreshold) -> Stop:
    """A chain ends by the product of its tokens' probabilities under the draft."""
    return ConfidenceStop(0.0, floors)


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
