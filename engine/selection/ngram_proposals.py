"""Copies: proposals of the arms that have one now and then, and whether they pay in this round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.interfaces.drafter import (
    Budget,
    Context,
    Drafter,
    RowPrices,
)
from engine.selection.request_state import RequestState
from engine.speculation.tree import DraftTree
from engine.statistics.pass_cost import PassCost
from engine.statistics.speedup import Calibration, Speedup, speedup_from_prior

MARGIN = 1.15  # on a proposal's price: one that just breaks even adds nothing but risk
REPRICED = 16  # rounds for which the prices of rows are believed


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """A request that an arm may propose something for."""

    context: Context
    budget: Budget
    match: RequestState


@dataclass(frozen=True, slots=True)
class Proposal:
    """The best one for a request, and the arm that made it; or one that does not pay, if none does."""

    arm: str
    tree: DraftTree
    pays: bool


class NgramProposals:
    """Arms that propose only where they have reason to say what they expect of it.

    They draft where that is more than what else would run brings, at the price that the request's
    pace gives to rows; what became of earlier proposals of a kind of task corrects them. A short one
    may bring less than its rows cost and be right all the same: it finds out for little whether there
    is something to copy, and later rounds copy it (``engine.speculation.copy_planning``).
    """

    def __init__(self, drafters: Mapping[str, Drafter], cost: PassCost) -> None:
        """By arm: those that decline."""
        self._drafters, self._cost = drafters, cost
        self._always = {n: one for n, one in drafters.items() if not one.needs_grammar}
        self.luck: dict[str, dict[str, Calibration]] = {}  # by kind of task, and arm
        self._longest = max((drafter.max_draft.nodes for drafter in drafters.values()), default=0)
        self._prices: dict[int, RowPrices] = {}  # by requests
        self._rounds = 0

    def start(self, context: Context, paces: Mapping[str, Speedup]) -> None:
        """At a kind's first round: where copies were slower than what else ran, they had no luck."""
        if context.task in self.luck:
            return
        best = max([1.0, *(pace.value for pace in paces.values())])
        lucks = {name: Calibration() for name in self._drafters}
        for name, luck in lucks.items():
            if (found := speedup_from_prior(context.priors.get(name), best)) is not None:
                luck.believe(found.value / best)
        self.luck[context.task] = lucks

    def proposals(
        self, batch: Sequence[Context], asked: Sequence[ProposalRequest]
    ) -> dict[int, Proposal]:
        """By request, of those asked for: what brings more than the favourite would, or what is there.

        ``batch`` is all that share the pass.
        """
        found: dict[int, Proposal] = {}
        if not asked:
            return found
        prices = self._row_prices(batch)
        rates = [one.match.rate for one in asked]
        best = [one.match.usual for one in asked]
        guided = any(one.context.grammar is not None for one in asked)
        for name, drafter in (self._drafters if guided else self._always).items():
            lucks = [self.luck[one.context.task][name].value for one in asked]
            own = drafter.max_draft
            budgets = [
                prices.budget(own, one.budget, rate / luck, one.match.stake)
                for one, rate, luck in zip(asked, rates, lucks, strict=True)
            ]
            trees = drafter.draft([one.context for one in asked], budgets)
            for at, (one, luck, tree) in enumerate(zip(asked, lucks, trees, strict=True)):
                if not tree.drafted:
                    continue
                price = MARGIN * prices.rows[tree.drafted]
                gain = 1 + luck * (tree.expected + tree.later) - rates[at] * (1 + price)
                if gain > best[at]:
                    best[at], found[one.context.request] = gain, Proposal(name, tree, pays=True)
                else:
                    found.setdefault(one.context.request, Proposal(name, tree, pays=False))
        return found

    def observe(self, task: str, arm: str, accepted: int, expected: float) -> None:
        """A round of any arm: one of these had luck or not, what is held against the others fades."""
        for name, luck in self.luck[task].items():
            if name == arm:
                luck.add(accepted, expected)
            else:
                luck.fade()

    def _row_prices(self, batch: Sequence[Context]) -> RowPrices:
        """Tokens that rows must bring at plain's pace; they change slowly, and asking takes 70 us."""
        if self._rounds % REPRICED == 0:
            self._prices.clear()
        self._rounds += 1
        if len(batch) not in self._prices:
            together = sum(len(context.ids) for context in batch)
            rows = self._cost.prices(1.0, self._longest, len(batch), together)
            self._prices[len(batch)] = RowPrices.of(rows)
        return self._prices[len(batch)]
