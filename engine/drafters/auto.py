"""Auto: lets, per request and round, that drafter draft which measured fastest; plain is one of them."""

from collections.abc import Sequence

from typing_extensions import override

from engine.interfaces.drafter import (
    Budget,
    Context,
    Drafter,
    DrafterResources,
    Outcome,
)
from engine.interfaces.target import Capability
from engine.request import PLAIN, DrafterRun
from engine.selection.arm_stats import MEMORY, ArmStats
from engine.selection.exploration import Exploration
from engine.selection.ngram_proposals import NgramProposals, ProposalRequest
from engine.selection.request_state import FAST, RequestState
from engine.selection.tree_merge import TreeMerge
from engine.speculation.tree import DraftTree, single
from engine.statistics.speedup import SLOW, Speedup

HICCUP = 4.0  # times what a round can be expected to take: more is the machine's, not an arm's


class Auto(Drafter):
    """Arbitrates by pace: seconds that plain decoding would need over seconds needed.

    Plain decoding has pace 1 by definition, so nothing is spent on measuring it. One of the drafters
    that always propose is the favourite, and stays it until another is clearly faster (``Standings``);
    one that was never tried gets a trial at some time (``Trials``). Those that propose only now and
    then are asked first, and draft where that brings more than the favourite would (``Copies``).
    """

    title = "Auto"
    summary = "Uses in each round the drafter that is measured to be fastest, or none."
    plan_when = ("draft model",)
    plan_reason = (
        "prompt lookup, draft chains and trees are compared by measured time at each request"
    )
    has_arms = True
    max_draft = Budget(depth=64, nodes=256)

    def __init__(self, parts: DrafterResources) -> None:
        """Take the arms of ``parts`` but those that another one replaces.

        Two that look into the same text cost twice, and of two expectations of the same tokens the
        higher one is more often too high.
        """
        everyone = [arm.drafter for arm in parts.arms.values()]
        self.arms = {
            name: arm
            for name, arm in parts.arms.items()
            if not any(one.replaces(arm.drafter) for one in everyone)
        }
        self._cost = parts.cost
        drafters = {name: arm.drafter for name, arm in self.arms.items() if name != PLAIN}
        self._steady = {name: one for name, one in drafters.items() if not one.proposes_rarely}
        self._declining = {name: one for name, one in drafters.items() if one.proposes_rarely}
        self._standings = ArmStats(self._steady)
        self._trials = Exploration(self._steady, self._cost, self._standings)
        self._copies = NgramProposals(self._declining, self._cost)
        trees = Capability.TREE in parts.target.offers
        self._grafts = TreeMerge(self._cost, trees=trees)
        self._whole = Speedup().guessed(1.0, MEMORY)  # of all arms
        self._matches: dict[int, RequestState] = {}

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """Each request's arm drafts; requests with the same arm together."""
        matches = [self._match(context) for context in batch]
        asked: list[ProposalRequest] = []
        for context, budget, match in zip(batch, budgets, matches, strict=True):
            trying = self._trials.arm(match, self._matches.values())
            match.playing = trying or self._standings.favourite(match)
            if match.stint == 0:
                asked.append(ProposalRequest(context, budget, match))
        copied = self._copies.proposals(batch, asked)
        trees: dict[int, DraftTree] = {}
        steady: dict[str, list[int]] = {}
        for i, (context, match) in enumerate(zip(batch, matches, strict=True)):
            if (found := copied.get(context.request)) is not None and found.pays:
                match.playing, trees[i] = found.arm, found.tree
            else:
                steady.setdefault(match.playing, []).append(i)
        declined: dict[int, DraftTree] = {}
        for name, members in steady.items():
            drawn = self._ask(name, [batch[i] for i in members], [budgets[i] for i in members])
            trees |= dict(zip(members, drawn, strict=True))
            for i in members:
                found = copied.get(batch[i].request)
                if found is not None and self._grafts.suit(self._steady.get(name), trees[i]):
                    declined[i] = found.tree
        grown = self._grafts.hang(trees, declined, budgets)
        return [grown[i] for i in range(len(batch))]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Pass on to the arms that drafted; measure their pace."""
        by_arm: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            by_arm.setdefault(self.active_arm(outcome.context.request), []).append(outcome)
        for name, arm in self.arms.items():
            heard = [outcome.own for outcome in by_arm.get(name, [])]
            # what is copied can be compared with what was said whoever drafted
            copied = outcomes if name in self._declining else heard
            if copied:
                arm.drafter.observe(copied)
            if heard:
                arm.policy.observe(heard)
        for outcome in outcomes:
            self._measure(outcome)

    @override
    def forget(self, request: int, slot: int) -> None:
        """Drop what the request measured; the session keeps its part."""
        match = self._matches.pop(request, None)
        if match is not None:
            self._standings.ended(match)
        for arm in self.arms.values():
            arm.drafter.forget(request, slot)
            arm.policy.forget(request)

    @override
    def active_arm(self, request: int) -> str:
        """The arm that drafted this round."""
        match = self._matches.get(request)
        return match.playing if match else PLAIN

    @override
    def explain(self, runs: Sequence[DrafterRun]) -> str:
        """One sentence: what was measured of every arm that ran."""
        ran = sorted((run for run in runs if run.passes), key=lambda run: -run.passes)
        if not ran:
            return "auto: nothing was decoded"
        return f"auto, by measured pace: {', '.join(map(_said, ran))}"

    def _match(self, context: Context) -> RequestState:
        if context.request not in self._matches:
            paces, whole = self._standings.start(context), self._whole.weighing(MEMORY)
            self._copies.start(context, self._standings.paces)
            kind = self._standings.kind(context.task)
            self._matches[context.request] = RequestState(
                paces, whole, self._readings(context), kind
            )
        return self._matches[context.request]

    def _readings(self, context: Context) -> dict[str, float]:
        """Plain passes that arms with a cache of their own need for the prompt."""
        plain = self._cost.seconds(1, len(context.ids))
        return {
            name: seconds / plain
            for name, drafter in self._steady.items()
            if (seconds := drafter.prefill_seconds(context)) is not None
        }

    def _ask(
        self, name: str, batch: Sequence[Context], budgets: Sequence[Budget]
    ) -> list[DraftTree]:
        if name == PLAIN:
            return [single(context.ids[-1]) for context in batch]
        arm = self.arms[name]
        longest = [budget.within(arm.drafter.max_draft) for budget in budgets]
        return arm.drafter.draft(batch, arm.policy.budgets(batch, longest))

    def _measure(self, outcome: Outcome) -> None:
        match = self._matches[outcome.context.request]
        name, tokens = match.playing, len(outcome.verdict.path)
        plain = self._cost.seconds(outcome.batch, len(outcome.context.ids) * outcome.batch)
        seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
        passes = seconds / plain
        match.count(tokens, passes, copied=name in self._declining)
        self._copies.observe(outcome.context.task, name, tokens - 1, outcome.tree.expected)
        self._standings.heard(name)
        if name in self._steady and match.first_read():
            return
        usual = passes
        if passes > HICCUP:  # nearly never, and the curve need not be asked in every round
            usual = min(passes, HICCUP * self._longest(outcome, plain))
        match.whole.add(tokens, usual, FAST)
        self._whole.add(tokens, usual, SLOW)
        if name in self._steady:
            self._standings.measure(match, tokens, usual, drafted=outcome.tree.own.drafted > 0)

    def _longest(self, outcome: Outcome, plain: float) -> float:
        """Plain passes of a round whose draft takes as long as one.

        A machine that slept in the middle of an answer would else decode plainly until it is restarted.
        """
        rows = outcome.batch - 1 + len(outcome.tree)
        return 1 + self._cost.seconds(rows, len(outcome.context.ids) * outcome.batch) / plain


def _said(run: DrafterRun) -> str:
    passes = f"in {run.passes} pass{'es' * (run.passes != 1)}"
    if run.drafter == PLAIN or run.seconds <= 0:  # it is what paces are measured by
        return f"{run.drafter} {passes}"
    return f"{run.drafter} {run.plain_seconds / run.seconds:.2f}x plain {passes}"
