"""Trials: which arm is tried when, so that no answer pays for finding out about all of them."""

from collections.abc import Collection, Mapping
from math import inf

from engine.interfaces.drafter import Drafter
from engine.interfaces.target import Capability
from engine.request import PLAIN
from engine.selection.arm_stats import GUESS, ArmStats
from engine.selection.request_state import RequestState, optimistic
from engine.selection.speed_prior import expected_speed
from engine.statistics.pass_cost import PassCost

STINT, PROBE = 6, 3  # rounds of a trial, the first of which reads the prompt; of another look
APART = 8  # rounds between two trials: no answer pays for all of them
PATIENCE = 32  # rounds of a session without one, where earlier sessions told of an arm that pays
SHORT = 8  # tokens that an answer has, or usually gets, before a trial: fewer cannot win it back
PROBE_FIRST, PROBE_LAST = 64, 512  # rounds before the runner-up is tried again, doubling
WORTH_A_PROBE = 0.8  # share of the best pace
KNOWN = 48  # rounds of an arm that leads, before others of its draft model are tried
MORE = 4  # times as many nodes: where passes hide rows, trees have hundreds, and another pace
AFFORDABLE = 0.01  # plain passes per token to come that reading for a trial may take


class Exploration:
    """An arm that was never tried is tried for a few rounds, long after the last such trial.

    First the one that promises most by what a step of its drafts takes, and never one that could
    not even at its best be the fastest. Where history told of an arm that pays, a session begins
    without trials. Now and then, of those nearly as fast, the least known one is tried again.
    """

    def __init__(
        self, drafters: Mapping[str, Drafter], cost: PassCost, standings: ArmStats
    ) -> None:
        """By arm: those that always propose, and how they stand."""
        self._drafters, self._cost, self._standings = drafters, cost, standings
        self._forecasts: dict[str, tuple[float, float]] = {}
        self._since_trial, self._since_probe, self._wait = APART, 0, PROBE_FIRST
        self._rounds = 0

    def arm(self, match: RequestState, running: Collection[RequestState]) -> str:
        """The arm that is on trial in this round of one of the running matches; empty: none."""
        self._rounds += 1
        self._since_trial += 1
        self._since_probe += 1
        if match.stint == 0:
            match.on_trial, match.stint = self._untried(match, running) or self._probe(match)
            match.undrafted = 0
            if match.stint == 0:
                return ""
        else:
            match.stint -= 1
        self._since_trial = 0
        return match.on_trial if match.stint else ""

    def _untried(
        self, match: RequestState, running: Collection[RequestState]
    ) -> tuple[str, int] | None:
        tokens = max(match.emitted, self._standings.usual_tokens)
        if tokens < SHORT or self._since_trial < APART or self._early(match):
            return None
        untried = [name for name, pace in self._standings.paces.items() if pace.rounds == 0]
        if not untried:
            return None
        trying = {other.on_trial for other in running if other.stint}
        new = [
            name
            for name in untried
            if name not in trying and self._hopeful(match, name) and self._affordable(match, name)
        ]
        return (max(new, key=lambda name: self._forecast(name)[0]), STINT) if new else None

    def _early(self, match: RequestState) -> bool:
        """Whether a session has just begun, and history gave it an arm that pays."""
        paying = self._standings.remembers and match.favourite != PLAIN
        return paying and self._rounds <= PATIENCE

    def _probe(self, match: RequestState) -> tuple[str, int]:
        if self._since_probe < self._wait:
            return PLAIN, 0
        self._since_probe, self._wait = 0, min(2 * self._wait, PROBE_LAST)
        paces = self._standings.paces
        others = (n for n in paces if n != match.favourite and self._hopeful(match, n))
        rivals = [name for name in others if self._affordable(match, name)]
        best = max([1.0, *map(optimistic, paces.values())])
        least = max(1.0, WORTH_A_PROBE * best)  # who is slower than plain is no runner-up
        worth = [name for name in rivals if optimistic(paces[name]) >= least]
        chosen = min(worth, key=lambda name: paces[name].rounds, default=PLAIN)
        return chosen, PROBE if worth else 0

    def _forecast(self, name: str) -> tuple[float, float]:
        """Paces of an arm that was never tried: what can be hoped for, and what it hardly exceeds."""
        if name not in self._forecasts:
            drafter = self._drafters[name]
            step = drafter.step_seconds
            self._forecasts[name] = expected_speed(self._cost, step) if step else (GUESS, inf)
        return self._forecasts[name]

    def _hopeful(self, match: RequestState, name: str) -> bool:
        """Whether an arm was tried, or could at its best be faster than all that were are here."""
        paces = self._standings.paces
        if paces[name].rounds:
            return True
        if self._alike(match.favourite, name) and paces[match.favourite].rounds < KNOWN:
            return False
        tried = [arm for arm, pace in paces.items() if pace.rounds]
        fastest = max([1.0, *(match.paces[arm].value for arm in tried)])
        return self._forecast(name)[1] > fastest

    def _alike(self, name: str, other: str) -> bool:
        """Whether the second arm asks the same draft model, and for hardly more than the first one.

        A few percent tell them apart. Who leads after a trial of each stays the favourite, right or
        wrong, since the others are hardly heard again; who is known well is found back to.
        """
        arms = [self._drafters.get(arm) for arm in (name, other)]
        if not all(arm is not None and Capability.DRAFT_MODEL in arm.needs for arm in arms):
            return False
        first, second = (arm.max_draft.nodes for arm in arms if arm is not None)
        return second <= MORE * first

    def _affordable(self, match: RequestState, name: str) -> bool:
        """Whether the answer can bear what the arm reads before its trial."""
        return match.reading.get(name, 0.0) <= AFFORDABLE * self._standings.left(match)
