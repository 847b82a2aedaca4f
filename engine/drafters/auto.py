"""Auto: lets, per request and round, that drafter draft which measured fastest; plain is one of them."""

from collections.abc import Sequence

from typing_extensions import override

from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources, Outcome
from engine.request import PLAIN, DrafterRun
from engine.selection.arm_speedups import ArmSpeedups, RequestState
from engine.selection.ngram_proposals import NgramProposals, ProposalRequest
from engine.speculation.tree import DraftTree, single
from engine.statistics.tuning import TUNING


class Auto(Drafter):
    """Chooses by speedup: seconds that plain decoding would need over seconds needed.

    Plain decoding has speedup 1 by definition, so nothing is spent on measuring it. One of the
    drafters that always propose is the leader until another is clearly faster (``ArmSpeedups``).
    Those that propose only now and then are asked in every round, and draft where that brings more
    than the leader would (``NgramProposals``).
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
        """Take the arms of ``parts`` except those that another one replaces.

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
        self._declining = {name: one for name, one in drafters.items() if one.proposes_rarely}
        steady = {name: one for name, one in drafters.items() if not one.proposes_rarely}
        self.speedups = ArmSpeedups(steady, self._cost)
        self._proposals = NgramProposals(self._declining, self._cost)
        self._states: dict[int, RequestState] = {}

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """Each request's arm drafts; requests with the same arm together."""
        states = [self._state(context) for context in batch]
        asked: list[ProposalRequest] = []
        for context, budget, state in zip(batch, budgets, states, strict=True):
            state.arm = self.speedups.leader(state)
            speedup = max(1.0, self.speedups.value(state, state.arm))
            asked.append(ProposalRequest(context, budget, speedup, state.risk_budget))
        copied = self._proposals.proposals(batch, asked)
        trees: dict[int, DraftTree] = {}
        steady: dict[str, list[int]] = {}
        for i, (context, state) in enumerate(zip(batch, states, strict=True)):
            if (found := copied.get(context.request)) is not None:
                state.arm, trees[i] = found.arm, found.tree
            else:
                steady.setdefault(state.arm, []).append(i)
        for name, members in steady.items():
            drawn = self._ask(name, [batch[i] for i in members], [budgets[i] for i in members])
            trees |= dict(zip(members, drawn, strict=True))
        return [trees[i] for i in range(len(batch))]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Pass on to the arms that drafted; measure their pace."""
        by_arm: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            by_arm.setdefault(self.active_arm(outcome.context.request), []).append(outcome)
        for name, arm in self.arms.items():
            heard = by_arm.get(name, [])
            # what is copied can be compared with what was said, whichever drafter drafted it
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
        state = self._states.pop(request, None)
        if state is not None:
            self.speedups.end(state)
        for arm in self.arms.values():
            arm.drafter.forget(request, slot)
            arm.policy.forget(request)

    @override
    def active_arm(self, request: int) -> str:
        """The arm that drafted this round."""
        state = self._states.get(request)
        return state.arm if state else PLAIN

    @override
    def explain(self, runs: Sequence[DrafterRun]) -> str:
        """One sentence: what was measured of every arm that ran."""
        ran = sorted((run for run in runs if run.passes), key=lambda run: -run.passes)
        if not ran:
            return "auto: nothing was decoded"
        return f"auto, by measured pace: {', '.join(map(_said, ran))}"

    def _state(self, context: Context) -> RequestState:
        if context.request not in self._states:
            self._states[context.request] = self.speedups.start(context)
        return self._states[context.request]

    def _ask(
        self, name: str, batch: Sequence[Context], budgets: Sequence[Budget]
    ) -> list[DraftTree]:
        if name == PLAIN:
            return [single(context.ids[-1]) for context in batch]
        arm = self.arms[name]
        longest = [budget.within(arm.drafter.max_draft) for budget in budgets]
        return arm.drafter.draft(batch, arm.policy.budgets(batch, longest))

    def _measure(self, outcome: Outcome) -> None:
        state, tokens = self._states[outcome.context.request], len(outcome.verdict.path)
        plain = self._cost.seconds(*outcome.plain_pass)
        seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
        passes = seconds / plain
        state.count(tokens, passes)
        if state.arm not in self._declining and state.arm != PLAIN and state.first_draft():
            return
        if passes > TUNING.outlier:  # nearly never, so the curve is rarely asked
            passes = min(passes, TUNING.outlier * self._longest(outcome, plain))
        self.speedups.measure(state, tokens, passes)

    def _longest(self, outcome: Outcome, plain: float) -> float:
        """Plain passes of a round whose draft takes as long as one plain pass.

        Without this limit one pause of the machine would make an arm look slow until a restart.
        """
        requests, context, _ = outcome.plain_pass
        rows = requests - 1 + len(outcome.tree)
        return 1 + self._cost.seconds(rows, context, requests) / plain


def _said(run: DrafterRun) -> str:
    passes = f"in {run.passes} pass{'es' * (run.passes != 1)}"
    if run.drafter == PLAIN:  # it is what paces are measured by
        return f"plain decoding {passes}"
    pace = (
        f" {run.plain_seconds / run.seconds:.2f} times as fast as plain" if run.seconds > 0 else ""
    )
    return f"{run.drafter}{pace} {passes}"
