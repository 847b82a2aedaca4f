"""Proposals of the arms that have one now and then, and whether they pay in this round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.interfaces.drafter import Budget, Context, Drafter, RowPrices
from engine.selection.request_state import RequestState
from engine.selection.tuning import TUNING
from engine.speculation.tree import DraftTree
from engine.statistics.decayed import Decayed, Speedup, speedup_from_prior
from engine.statistics.pass_cost import PassCost


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """A request that an arm may propose something for."""

    context: Context
    budget: Budget
    state: RequestState


@dataclass(frozen=True, slots=True)
class Proposal:
    """The best proposal for a request, and the arm that made it."""

    arm: str
    tree: DraftTree


class Calibration:
    """Accepted tokens of an arm's proposals over those that the arm expected."""

    def __init__(self) -> None:
        """Trust the arm's own expectations."""
        self._evidence, self._memory = TUNING.evidence, TUNING.session_memory
        self._counts = Decayed(self._evidence, self._evidence)

    @property
    def value(self) -> float:
        """At most 1: an arm that expects too little is not corrected."""
        return min(1.0, self._counts.share())

    def start_from(self, share: float) -> None:
        """Before any proposal: earlier sessions saw this share of the expected tokens accepted."""
        self._counts.hits = self._evidence * min(1.0, share)

    def add(self, accepted: float, expected: float) -> None:
        """One proposal."""
        self._counts.add(accepted, expected, self._memory)

    def fade(self) -> None:
        """A round without a proposal: in the end the arm is trusted again."""
        trusted = self._evidence * (1 - self._memory)
        self.add(trusted, trusted)


class NgramProposals:
    """Asks the arms that propose only where they have reason to, and compares with the leader.

    A proposal is taken if it brings more than a round of the leader, at the price of its rows at
    the request's speedup. The outcome of earlier proposals, by kind of task, corrects what an arm
    expects. A short proposal may bring less than its rows cost and pay all the same: it finds out
    for little whether there is something to copy, which later rounds copy
    (``engine.speculation.copy_planning``).
    """

    def __init__(self, drafters: Mapping[str, Drafter], cost: PassCost) -> None:
        """``drafters``: the arms that decline most rounds, by name."""
        self._drafters, self._cost = drafters, cost
        self._without_grammar = {n: d for n, d in drafters.items() if not d.needs_grammar}
        self._calibrations: dict[str, dict[str, Calibration]] = {}  # by kind of task, and arm
        self._longest = max((drafter.max_draft.nodes for drafter in drafters.values()), default=0)
        self._prices: dict[int, RowPrices] = {}  # by requests
        self._rounds = 0

    def start(self, context: Context, speedups: Mapping[str, Speedup]) -> None:
        """At the first round of a task: an arm slower than the best of ``speedups`` expected too much."""
        if context.task in self._calibrations:
            return
        best = max([1.0, *(speedup.value for speedup in speedups.values())])
        calibrations = {name: Calibration() for name in self._drafters}
        for name, calibration in calibrations.items():
            if (found := speedup_from_prior(context.priors.get(name), best)) is not None:
                calibration.start_from(found.value / best)
        self._calibrations[context.task] = calibrations

    def proposals(
        self, batch: Sequence[Context], asked: Sequence[ProposalRequest]
    ) -> dict[int, Proposal]:
        """By request: the proposal that brings most, where one beats the leader.

        ``batch`` is all requests that share the pass, ``asked`` those that may get a proposal.
        """
        found: dict[int, Proposal] = {}
        if not asked:
            return found
        prices = self._row_prices(batch)
        baselines = [one.state.baseline for one in asked]
        best = [one.state.leader_gain for one in asked]
        constrained = any(one.context.grammar is not None for one in asked)
        for name, drafter in (self._drafters if constrained else self._without_grammar).items():
            shares = [self._calibrations[one.context.task][name].value for one in asked]
            own = drafter.max_draft
            budgets = [
                prices.budget(own, one.budget, baseline / share, one.state.risk_budget)
                for one, baseline, share in zip(asked, baselines, shares, strict=True)
            ]
            trees = drafter.draft([one.context for one in asked], budgets)
            for at, (one, share, tree) in enumerate(zip(asked, shares, trees, strict=True)):
                if not tree.drafted:
                    continue
                price = TUNING.margin * prices.rows[tree.drafted]
                gain = 1 + share * (tree.expected + tree.later) - baselines[at] * (1 + price)
                if gain > best[at]:
                    best[at], found[one.context.request] = gain, Proposal(name, tree)
        return found

    def observe(self, task: str, arm: str, accepted: int, expected: float) -> None:
        """A round of any arm; the calibrations of the other arms fade."""
        for name, calibration in self._calibrations[task].items():
            if name == arm:
                calibration.add(accepted, expected)
            else:
                calibration.fade()

    def _row_prices(self, batch: Sequence[Context]) -> RowPrices:
        """Tokens that rows must bring at speedup 1; kept for some rounds, as asking takes 70 us."""
        if self._rounds % TUNING.price_rounds == 0:
            self._prices.clear()
        self._rounds += 1
        if len(batch) not in self._prices:
            together = sum(len(context.ids) for context in batch)
            rows = self._cost.prices(1.0, self._longest, len(batch), together)
            self._prices[len(batch)] = RowPrices.of(rows)
        return self._prices[len(batch)]
