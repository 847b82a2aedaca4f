"""Proposals of the arms that have one now and then, and whether they pay in this round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.interfaces.drafter import Budget, Context, Drafter, RowPrices
from engine.selection.tuning import TUNING
from engine.speculation.tree import DraftTree
from engine.statistics.pass_cost import PassCost


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """A request that an arm may propose something for."""

    context: Context
    budget: Budget
    speedup: float  # of a round without a proposal
    risk: float  # plain passes that one proposal may cost


@dataclass(frozen=True, slots=True)
class Proposal:
    """The best proposal for a request, and the arm that made it."""

    arm: str
    tree: DraftTree


class NgramProposals:
    """Asks the arms that propose only where they have reason to.

    Each measures itself how likely its tokens are. A proposal is taken if it brings more than its
    rows cost at the speedup of rounds without one. A short one may bring less and pay all the
    same: it finds out for little whether there is something to copy, which later rounds copy
    (``engine.speculation.copy_planning``).
    """

    def __init__(self, drafters: Mapping[str, Drafter], cost: PassCost) -> None:
        """``drafters``: the arms that decline most rounds, by name."""
        self._drafters, self._cost = drafters, cost
        self._without_grammar = {n: d for n, d in drafters.items() if not d.needs_grammar}
        self._longest = max((drafter.max_draft.nodes for drafter in drafters.values()), default=0)
        self._prices: dict[int, RowPrices] = {}  # by requests
        self._rounds = 0

    def proposals(
        self, batch: Sequence[Context], asked: Sequence[ProposalRequest]
    ) -> dict[int, Proposal]:
        """By request: the proposal that brings most, where one pays.

        ``batch`` is all requests that share the pass, ``asked`` those that may get a proposal.
        """
        found: dict[int, Proposal] = {}
        prices = self._row_prices(batch)
        best = [0.0] * len(asked)
        constrained = any(one.context.grammar is not None for one in asked)
        for name, drafter in (self._drafters if constrained else self._without_grammar).items():
            own = drafter.max_draft
            budgets = [prices.budget(own, one.budget, one.speedup, one.risk) for one in asked]
            trees = drafter.draft([one.context for one in asked], budgets)
            for at, (one, tree) in enumerate(zip(asked, trees, strict=True)):
                cost = one.speedup * (1 + prices.rows[tree.drafted])
                gain = 1 + tree.expected + tree.later - cost
                if tree.drafted and gain > best[at]:
                    best[at], found[one.context.request] = gain, Proposal(name, tree)
        return found

    def _row_prices(self, batch: Sequence[Context]) -> RowPrices:
        """Tokens that rows must bring at speedup 1; kept for some rounds."""
        if self._rounds % TUNING.price_rounds == 0:
            self._prices.clear()
        self._rounds += 1
        if len(batch) not in self._prices:
            together = sum(len(context.ids) for context in batch)
            rows = self._cost.prices(1.0, self._longest, len(batch), together)
            self._prices[len(batch)] = RowPrices.of(rows)
        return self._prices[len(batch)]
