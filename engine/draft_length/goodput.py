"""Goodput lengths (SmartSpec, arXiv 2406.14066): most expected tokens per measured second.

Every step maximises over the lengths k_r >= 0 of all requests r that share a drafter

    sum_r (1 + sum_{i<=k_r} prod_{j<=i} a_rj) / (t(sum_r (k_r + 1), context) + d(max_r k_r, sum_r k_r))

with a_rj the acceptance at depth j from evaluated tokens only, t the target's measured pass and d
the measured draft: its steps and the rows in them. Survival never rises with depth, so for each limit
of max_r k_r, admitting draft tokens of all requests in the order of their survival visits the best
allocation. k = 0 is plain decoding.

A tree is admitted by doublings of its nodes, valued by what trees of that size brought so far. A
drafter that leaves out unlikely nodes only gets the decision to draft and the price of a node. So does
a chain whose drafter reports probabilities: averages decide whether it drafts, its own probabilities
where it ends (``engine.draft_length.stop_threshold``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import log2
from typing import NamedTuple

from typing_extensions import override

from engine.draft_length.stop_threshold import ConfidenceStop, StopThreshold
from engine.draft_length.tuning import TUNING
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
from engine.statistics.decayed import Decayed
from engine.statistics.pass_cost import DraftCost, PassCost
from engine.statistics.tuning import TUNING as STATISTICS


@dataclass
class DepthAcceptance:
    """Accepted tokens over evaluated ones at depths 1, 2, ..."""

    memory: float  # weight of the past per evaluated token
    counts: list[Decayed] = field(default_factory=list)

    def note(self, accepted: int, *, refused: bool) -> None:
        """One walk: the depths that it evaluated learn, the counts of deeper ones fade."""
        evaluated = accepted + refused
        while len(self.counts) < evaluated:
            self.counts.append(Decayed())
        for depth, counts in enumerate(self.counts, 1):
            if depth <= evaluated:
                counts.add(depth <= accepted, memory=self.memory)
            else:
                counts.fade(self.memory)

    def at(self, depth: int) -> Decayed:
        """Counts at a depth, 0 first; empty where nothing was evaluated."""
        return self.counts[depth] if depth < len(self.counts) else Decayed()


def pooled(pool: DepthAcceptance, count: int) -> list[float]:
    """Acceptance of all requests at depths 1..count; an unknown depth is like the one before it."""
    found, guess = [], TUNING.guess
    for depth in range(count):
        guess = pool.at(depth).share(guess, TUNING.guess_weight)
        found.append(min(guess, TUNING.max_acceptance))
    return found


def shrunk(own: DepthAcceptance, pool: Sequence[float]) -> list[float]:
    """One request's acceptance at the depths of ``pool``, with the pool's as prior.

    Few tokens say little, and the best of many noisy estimates looks better than it is. What the
    request's shallower depths did better or worse than the pool, its deeper ones are expected to do.
    """
    found, difference = [], 0.0
    for depth, usual in enumerate(pool):
        rate = min(max(usual + difference, 0.0), TUNING.max_acceptance)
        if depth < len(own.counts):
            rate = own.counts[depth].share(rate, TUNING.pool_weight)
        difference = rate - usual
        found.append(min(rate, TUNING.max_acceptance))
    return found


class _Request:
    """Acceptance of one request, and how long it has decoded plainly."""

    def __init__(self, prior: Prior | None) -> None:
        """Start from what earlier sessions measured."""
        self.acceptance = DepthAcceptance(TUNING.request_memory, _history(prior))
        self.sizes: dict[int, Decayed] = {}  # doublings -> accepted tokens per tree
        weight = TUNING.guess_weight
        self.tree_scale = Decayed(weight, weight)  # accepted tokens over those that were guessed
        self.length = 0  # of the last budget
        self.drafts = 0
        self.plain = 0  # plain passes since the last draft
        self.wait = TUNING.first_rest

    def tree_gain(self, doublings: int) -> float:
        """Expected accepted tokens of a tree of 2^doublings nodes."""
        guess = self.tree_scale.share() * TUNING.tree_gain * (doublings + 1)
        return self.sizes.get(doublings, Decayed()).share(guess, TUNING.guess_weight)

    def note_tree(self, nodes: int, accepted: int) -> None:
        """One tree that was verified."""
        doublings, memory = round(log2(nodes)), TUNING.request_memory
        guess = TUNING.tree_gain * (doublings + 1)
        self.tree_scale.add(accepted / guess, memory=memory)
        self.sizes.setdefault(doublings, Decayed()).add(accepted, memory=memory)


class Offer(NamedTuple):
    """More nodes for one request: what they add to a pass, and what they are expected to bring."""

    rows: int
    steps: int  # total draft steps once this is admitted
    gain: float


@dataclass
class _KeptDecision:
    """A decision about one batch; made twice in a row, it is kept for some rounds: asking takes 0.1 ms."""

    batch: tuple[int, ...] = ()
    left: int = 0

    def holds(self, batch: tuple[int, ...]) -> bool:
        """Whether it need not be made again in this round."""
        if self.batch != batch or self.left == 0:
            return False
        self.left -= 1
        return True

    def note(self, batch: tuple[int, ...], *, made: bool) -> None:
        """It was made, or the opposite was."""
        self.left = TUNING.kept_rounds if made and self.batch == batch else 0
        self.batch = batch if made else ()


class Goodput(DraftLength):
    """Length per request and round, 0 included; probes with growing intervals while off."""

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Share the target's measured cost; learn the draft's own."""
        self._cost, self._drafter = parts.cost, drafter
        self._prunes = StopRule.FLOOR in parts.stop_rules  # the drafter leaves out unlikely nodes
        self._reports_chances = StopRule.CHANCES in parts.stop_rules
        self._draft = DraftCost(step=parts.step_seconds)
        self._pool = DepthAcceptance(TUNING.pool_memory)
        self._requests: dict[int, _Request] = {}
        self._rate = 0.0  # tokens per second of the last allocation
        self._all_draft, self._none_drafts = _KeptDecision(), _KeptDecision()

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The best allocation for the whole batch; chains with probabilities end by these."""
        if self._reports_chances and not any(_is_tree(budget) for budget in longest):
            return self.ending(batch, longest, _confidence_stop)
        return self._allocate(batch, longest)

    def ending(
        self,
        batch: Sequence[Context],
        longest: Sequence[Budget],
        stop: Callable[[Context, StopThreshold], Stop],
    ) -> list[Budget]:
        """The longest chains for requests that draft, each with a ``stop`` of its own."""
        drafting = self._drafting(batch, longest)
        if not any(drafting):
            return [Budget(0, 0)] * len(batch)
        reach = max(budget.depth for budget in longest)
        threshold = self._threshold(len(batch), sum(drafting), reach)
        return [
            replace(most, stop=stop(context, threshold)) if drafts and most.depth else Budget(0, 0)
            for context, most, drafts in zip(batch, longest, drafting, strict=True)
        ]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn the draft's cost from its call, acceptance from the nodes that walks looked at."""
        drafting = [o for o in outcomes if o.tree.drafted]
        # a request's first draft also reads the prompt: its time says nothing of the next one
        if drafting and all(self._request(o.context).drafts for o in drafting):
            drafted = [o.tree.drafted for o in drafting]  # a tree's cost grows with its nodes
            self._draft.observe(max(drafted), sum(drafted), outcomes[0].draft_seconds)
        for outcome in outcomes:
            self._note(outcome)

    @override
    def forget(self, request: int) -> None:
        """Drop the request's acceptance; the costs stay, and its part in the pool."""
        self._requests.pop(request, None)

    def _drafting(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[bool]:
        """Whether each request drafts at all; a first yes may be a probe and is not kept."""
        numbers = tuple([context.request for context in batch])
        if self._all_draft.holds(numbers):
            return [True] * len(batch)
        most = TUNING.switch_length
        short = [Budget(min(b.depth, most), min(b.nodes, most)) for b in longest]
        drafting = [budget.depth > 0 for budget in self._allocate(batch, short)]
        self._all_draft.note(numbers, made=all(drafting))
        return drafting

    def _allocate(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The best allocation; while nothing drafts, nothing is learnt, so that is kept for some rounds."""
        numbers = tuple([context.request for context in batch])
        requests = [self._request(context) for context in batch]
        due = any(request.plain >= request.wait for request in requests)
        if not due and self._none_drafts.holds(numbers):
            return [Budget(0, 0)] * len(batch)
        budgets = self._best(batch, longest, requests)
        self._none_drafts.note(numbers, made=not any(budget.nodes for budget in budgets))
        return budgets

    def _best(
        self, batch: Sequence[Context], longest: Sequence[Budget], requests: Sequence[_Request]
    ) -> list[Budget]:
        """What pays, and a probe where nothing did for long enough."""
        pool = pooled(self._pool, max(budget.depth for budget in longest))
        offers = [_offers(r, b, pool) for r, b in zip(requests, longest, strict=True)]
        context = sum(len(c.ids) for c in batch)
        admitted, rate, rows = admit(offers, self._cost, self._draft, context)
        self._rate = rate
        floor = min(rate * self._row_seconds(rows, context, len(batch)), TUNING.max_acceptance)
        probe = TUNING.probe_length
        if len(batch) > 1:  # a probe takes no draft steps of its own
            probe = max(1, min(probe, *admitted))
        least = self._cost.hidden // len(batch) - 1
        triples = zip(requests, longest, admitted, strict=True)
        budgets = [
            _budget(most, _length(request, most, chosen, probe), least, floor)
            for request, most, chosen in triples
        ]
        if self._prunes and self._cost.hidden <= 1:
            speedup = rate * self._cost.seconds(len(batch), context, len(batch)) / len(batch)
            widest = max(budget.nodes for budget in longest)
            prices = self._cost.prices(max(1.0, speedup), widest, len(batch), context)
            pairs = zip(budgets, longest, strict=True)
            return [_priced(budget, most, prices) for budget, most in pairs]
        return budgets

    def _threshold(self, requests: int, drafting: int, longest: int) -> StopThreshold:
        """Of the chains of one round in which ``drafting`` requests draft up to ``longest`` tokens."""
        widths = range(2 * requests, (longest + 2) * requests + 1, requests)
        seconds = self._cost.each(widths)
        rows = [(more - less) / requests for less, more in pairwise(seconds)]
        return StopThreshold(self._rate, rows, self._draft.parts(), drafting)

    def _request(self, context: Context) -> _Request:
        if context.request not in self._requests:
            prior = context.priors.get(self._drafter)
            self._requests[context.request] = _Request(prior)
        return self._requests[context.request]

    def _note(self, outcome: Outcome) -> None:
        request, tree, path = self._request(outcome.context), outcome.tree, outcome.verdict.path
        if not tree.drafted:
            request.plain += request.length == 0  # else the drafter had nothing to propose
            return
        request.plain = 0
        request.drafts += 1
        refused = bool(tree.children[path[-1]])
        request.acceptance.note(len(path) - 1, refused=refused)
        self._pool.note(len(path) - 1, refused=refused)
        if not tree.is_chain:
            request.note_tree(tree.drafted, len(path) - 1)

    def _row_seconds(self, rows: int, context: int, requests: int) -> float:
        """Seconds of one more row in a pass of ``rows``."""
        few, many = self._cost.each((rows, 2 * rows), context, requests)
        return (many - few) / rows


def admit(
    offers: list[list[Offer]], cost: PassCost, draft: DraftCost, context: int
) -> tuple[list[int], float, int]:
    """How many offers of each request to take; tokens per second and rows of the pass.

    Requests draft in step, so the deepest sets the draft's time: under every limit of it offers are
    admitted one after the other. Plain Python: a round has a handful of them.
    """
    requests = len(offers)
    queue = _queue(offers)
    limits = sorted({offer.steps for _, offer in queue})
    widths = _widths(queue, limits, requests)
    passes = dict(zip(widths, cost.each(widths, context, requests), strict=True))
    best, last, rows, deepest = requests / passes[requests], 0, requests, 0
    start, step, row = draft.parts()
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


def _queue(offers: list[list[Offer]]) -> list[tuple[int, Offer]]:
    """All offers with the place of their request, most tokens per row first.

    An offer counts for no more than the one before it, which must be taken first.
    """
    worth = [
        (value, request, offer)
        for request, own in enumerate(offers)
        for value, offer in zip(accumulate((o.gain / o.rows for o in own), min), own, strict=True)
    ]
    worth.sort(key=lambda entry: -entry[0])
    return [(request, offer) for _, request, offer in worth]


def _widths(
    queue: Sequence[tuple[int, Offer]], limits: Sequence[int], requests: int
) -> Sequence[int]:
    """Rows of all passes that admitting the queue visits, under every limit of draft steps."""
    reached = {requests}
    for limit in limits:
        rows = (offer.rows for _, offer in queue if offer.steps <= limit)
        reached.update(accumulate(rows, initial=requests))
    return sorted(reached)


def _history(prior: Prior | None) -> list[Decayed]:
    """Acceptance by depth in earlier sessions, limited in weight."""
    found: list[Decayed] = []
    for evaluated, accepted in prior.depths if prior else ():
        if evaluated <= 0:
            break
        weight = min(evaluated, STATISTICS.prior_weight)
        found.append(Decayed(weight * accepted / evaluated, weight))
    return found


def _confidence_stop(_: Context, threshold: StopThreshold) -> Stop:
    """A chain ends by the product of its tokens' probabilities under the draft."""
    return ConfidenceStop(0.0, threshold)


def _is_tree(longest: Budget) -> bool:
    return longest.nodes > longest.depth


def _offers(request: _Request, longest: Budget, pool: Sequence[float]) -> list[Offer]:
    """What one request could draft, cheapest and surest first."""
    if not _is_tree(longest):
        reach, offers = 1.0, []
        depths = pool[: min(longest.depth, longest.nodes)]
        for depth, rate in enumerate(shrunk(request.acceptance, depths), 1):
            reach *= rate
            offers.append(Offer(1, depth, reach))
        return offers
    offers, before, nodes, doublings = [], 0.0, 0, 0
    while longest.depth > 0 and 2**doublings <= longest.nodes:
        gain = max(request.tree_gain(doublings), before)
        offers.append(Offer(2**doublings - nodes, 2**doublings, gain - before))
        before, nodes, doublings = gain, 2**doublings, doublings + 1
    return offers


def _length(request: _Request, longest: Budget, admitted: int, probe: int) -> int:
    """The offers that were admitted; now and then those of a probe if none were."""
    if admitted:
        request.wait = TUNING.first_rest
    elif request.plain >= request.wait and longest.depth > 0:
        request.wait = min(2 * request.wait, TUNING.longest_rest)
        admitted = min(probe, longest.depth)
    request.length = admitted
    return admitted


def _budget(longest: Budget, length: int, least: int, floor: float) -> Budget:
    """The budget of ``length`` offers; a tree has the ``least`` nodes that reading weights hides."""
    if not _is_tree(longest):
        return Budget(length, length, floor=floor)
    nodes = min(max(2 ** (length - 1), least), longest.nodes) if length else 0
    return Budget(min(longest.depth, nodes), nodes, floor=floor)


def _priced(budget: Budget, longest: Budget, prices: tuple[float, ...]) -> Budget:
    """As many nodes as are worth their rows, if any were admitted."""
    if not budget.nodes or not _is_tree(longest):
        return budget
    # where rows are free, a node still takes draft time
    floor = max(budget.floor, TUNING.least_floor)
    return Budget(longest.depth, longest.nodes, floor=floor, prices=prices)
