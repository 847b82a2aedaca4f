"""Which arm is tried when, so that no answer pays for trying all of them."""

from collections.abc import Collection, Mapping
from math import inf

from engine.interfaces.drafter import Drafter
from engine.interfaces.target import Capability
from engine.request import PLAIN
from engine.selection.arm_stats import ArmStats
from engine.selection.request_state import RequestState
from engine.selection.tuning import TUNING, Tuning
from engine.statistics.pass_cost import PassCost


class Exploration:
    """An untried arm gets a trial of a few rounds, some time after the last trial.

    The arm of the largest expected speedup comes first. An arm that could not be the fastest even
    at its best is never tried. A session whose history has an arm that pays starts without trials.
    From time to time the least known of the arms that are nearly as fast as the best is probed.
    """

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        cost: PassCost,
        stats: ArmStats,
        tuning: Tuning = TUNING,
    ) -> None:
        """``drafters``: the arms that always propose, by name."""
        self._drafters, self._cost, self._stats, self._tuning = drafters, cost, stats, tuning
        self._expected: dict[str, tuple[float, float]] = {}
        self._since_trial, self._since_probe = tuning.trial_gap, 0
        self._wait = tuning.first_probe
        self._rounds = 0

    def arm(self, state: RequestState, running: Collection[RequestState]) -> str:
        """The arm on trial in this round of one of the ``running`` requests; empty: none."""
        self._rounds += 1
        self._since_trial += 1
        self._since_probe += 1
        if state.trial_rounds == 0:
            trial = self._trial(state, running) or self._probe(state)
            state.trial_arm, state.trial_rounds = trial
            state.empty_rounds = 0
            if state.trial_rounds == 0:
                return ""
        else:
            state.trial_rounds -= 1
        self._since_trial = 0
        return state.trial_arm if state.trial_rounds else ""

    def _trial(
        self, state: RequestState, running: Collection[RequestState]
    ) -> tuple[str, int] | None:
        """An untried arm and the rounds of its trial."""
        tuning = self._tuning
        tokens = max(state.emitted, self._stats.usual_tokens)
        if tokens < tuning.short_answer or self._since_trial < tuning.trial_gap:
            return None
        if self._early(state):
            return None
        untried = [name for name, speedup in self._stats.speedups.items() if speedup.rounds == 0]
        if not untried:
            return None
        on_trial = {other.trial_arm for other in running if other.trial_rounds}
        new = [name for name in untried if name not in on_trial and self._worth_trying(state, name)]
        if not new:
            return None
        return max(new, key=lambda name: self._expected_speed(name)[0]), tuning.trial_rounds

    def _early(self, state: RequestState) -> bool:
        """Whether the session has just started, and its history has an arm that pays."""
        paying = self._stats.has_history and state.leader != PLAIN
        return paying and self._rounds <= self._tuning.patience

    def _probe(self, state: RequestState) -> tuple[str, int]:
        """A known arm that is nearly as fast as the best, and the rounds of its probe; 0: none."""
        tuning, speedups = self._tuning, self._stats.speedups
        if self._since_probe < self._wait:
            return PLAIN, 0
        self._since_probe, self._wait = 0, min(2 * self._wait, tuning.last_probe)
        bounds = {name: each.upper_bound(tuning.credit) for name, each in speedups.items()}
        others = (n for n in speedups if n != state.leader and self._worth_trying(state, n))
        least = max(1.0, tuning.rival_share * max([1.0, *bounds.values()]))
        rivals = [name for name in others if bounds[name] >= least]
        chosen = min(rivals, key=lambda name: speedups[name].rounds, default=PLAIN)
        return chosen, tuning.probe_rounds if rivals else 0

    def _worth_trying(self, state: RequestState, name: str) -> bool:
        return self._could_lead(state, name) and self._affordable(state, name)

    def _expected_speed(self, name: str) -> tuple[float, float]:
        """Speedups of an untried arm: what is usual, and what it hardly exceeds."""
        if name not in self._expected:
            drafter = self._drafters[name]
            step = drafter.step_seconds
            self._expected[name] = (
                expected_speed(self._cost, step, self._tuning)
                if step
                else (self._tuning.guess, inf)
            )
        return self._expected[name]

    def _could_lead(self, state: RequestState, name: str) -> bool:
        """Whether an arm was tried, or could be faster at its best than all that were tried."""
        speedups = self._stats.speedups
        if speedups[name].rounds:
            return True
        known = self._tuning.known_rounds
        if self._alike(state.leader, name) and speedups[state.leader].rounds < known:
            return False
        tried = [arm for arm, speedup in speedups.items() if speedup.rounds]
        fastest = max([1.0, *(state.speedups[arm].value for arm in tried)])
        return self._expected_speed(name)[1] > fastest

    def _alike(self, name: str, other: str) -> bool:
        """Whether the second arm asks the same draft model for hardly more than the first one.

        Such arms differ by a few percent, less than one trial can show. The winner of two short
        trials would stay the leader for long, right or wrong, so the first one is measured first.
        """
        arms = [self._drafters.get(arm) for arm in (name, other)]
        if not all(arm is not None and Capability.DRAFT_MODEL in arm.needs for arm in arms):
            return False
        first, second = (arm.max_draft.nodes for arm in arms if arm is not None)
        return second <= self._tuning.larger_draft * first

    def _affordable(self, state: RequestState, name: str) -> bool:
        """Whether the answer is long enough to pay for what the arm reads before its trial."""
        most = self._tuning.affordable * self._stats.left(state)
        return state.reading.get(name, 0.0) <= most


def expected_speed(cost: PassCost, step: float, tuning: Tuning = TUNING) -> tuple[float, float]:
    """Speedups of chains with the usual and with the best acceptance; at least 1.

    ``step`` is the seconds of a draft step. A chain of k tokens, each accepted with chance a,
    brings 1 + a + .. + a^k tokens (SmartSpec, arXiv 2406.14066) in k steps and a pass of k + 1
    rows; the best k counts, 0 included.
    """
    passes = cost.each(range(1, tuning.longest_chain + 2))
    usual, best = tuning.usual_acceptance, tuning.best_acceptance
    return _best_chain(passes, step, usual), _best_chain(passes, step, best)


def _best_chain(passes: list[float], step: float, acceptance: float) -> float:
    tokens, best = 1.0, 1.0
    for length, seconds in enumerate(passes[1:], 1):
        tokens += acceptance**length
        best = max(best, tokens * passes[0] / (seconds + length * step))
    return best
