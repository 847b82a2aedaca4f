"""Which arm is tried when, so that no answer pays for trying all of them."""

from collections.abc import Collection, Mapping
from math import inf

from engine.interfaces.drafter import Drafter
from engine.request import PLAIN
from engine.selection.arm_stats import ArmStats
from engine.selection.request_state import RequestState
from engine.selection.tuning import TUNING
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
    ) -> None:
        """``drafters``: the arms that always propose, by name."""
        self._drafters, self._cost, self._stats = drafters, cost, stats
        self._expected: dict[str, tuple[float, float]] = {}
        self._since_trial, self._since_probe = TUNING.trial_gap, 0
        self._wait = TUNING.first_probe
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
        tokens = max(state.emitted, self._stats.usual_tokens)
        if tokens < TUNING.short_answer or self._since_trial < TUNING.trial_gap:
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
        return max(new, key=lambda name: self._expected_speed(name)[0]), TUNING.trial_rounds

    def _early(self, state: RequestState) -> bool:
        """Whether the session has just started, and its history has an arm that pays."""
        paying = self._stats.has_history and state.leader != PLAIN
        return paying and self._rounds <= TUNING.patience

    def _probe(self, state: RequestState) -> tuple[str, int]:
        """A known arm that is nearly as fast as the best, and the rounds of its probe; 0: none."""
        speedups = self._stats.speedups
        if self._since_probe < self._wait:
            return PLAIN, 0
        self._since_probe, self._wait = 0, min(2 * self._wait, TUNING.last_probe)
        bounds = {name: each.upper_bound(TUNING.credit) for name, each in speedups.items()}
        others = (n for n in speedups if n != state.leader and self._worth_trying(state, n))
        least = max(1.0, TUNING.rival_share * max([1.0, *bounds.values()]))
        rivals = [name for name in others if bounds[name] >= least]
        chosen = min(rivals, key=lambda name: speedups[name].rounds, default=PLAIN)
        return chosen, TUNING.probe_rounds if rivals else 0

    def _worth_trying(self, state: RequestState, name: str) -> bool:
        return self._could_lead(state, name) and self._affordable(state, name)

    def _expected_speed(self, name: str) -> tuple[float, float]:
        """Speedups of an untried arm: what is usual, and what it hardly exceeds."""
        if name not in self._expected:
            drafter = self._drafters[name]
            step = drafter.step_seconds
            known = expected_speed(self._cost, step) if step else (TUNING.guess, inf)
            self._expected[name] = known
        return self._expected[name]

    def _could_lead(self, state: RequestState, name: str) -> bool:
        """Whether an arm was tried, or could be faster at its best than all that were tried."""
        speedups = self._stats.speedups
        if speedups[name].rounds:
            return True
        tried = [arm for arm, speedup in speedups.items() if speedup.rounds]
        fastest = max([1.0, *(state.speedups[arm].value for arm in tried)])
        return self._expected_speed(name)[1] > fastest

    def _affordable(self, state: RequestState, name: str) -> bool:
        """Whether the answer is long enough to pay for what the arm reads before its trial."""
        most = TUNING.affordable * self._stats.left(state)
        return state.reading.get(name, 0.0) <= most


def expected_speed(cost: PassCost, step: float) -> tuple[float, float]:
    """Speedups of chains with the usual and with the best acceptance; at least 1.

    ``step`` is the seconds of a draft step. A chain of k tokens, each accepted with chance a,
    brings 1 + a + .. + a^k tokens (SmartSpec, arXiv 2406.14066) in k steps and a pass of k + 1
    rows; the best k counts, 0 included.
    """
    passes = cost.each(range(1, TUNING.longest_chain + 2))
    usual, best = TUNING.usual_acceptance, TUNING.best_acceptance
    return _best_chain(passes, step, usual), _best_chain(passes, step, best)


def _best_chain(passes: list[float], step: float, acceptance: float) -> float:
    tokens, best = 1.0, 1.0
    for length, seconds in enumerate(passes[1:], 1):
        tokens += acceptance**length
        best = max(best, tokens * passes[0] / (seconds + length * step))
    return best
