"""How much faster than plain decoding each arm that always proposes is, and which one drafts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt

from engine.interfaces.drafter import Context, Drafter
from engine.request import PLAIN
from engine.selection.tuning import TUNING
from engine.statistics.decayed import Speedup, speedup_from_prior
from engine.statistics.pass_cost import PassCost


@dataclass
class RequestState:
    """One request; speedups are tokens per plain pass, so that plain decoding has 1."""

    task: str
    speedups: dict[str, Speedup]  # of arms that always propose
    reading: dict[str, float]  # plain passes an arm reads before it drafts; empty once one has read
    arm: str = PLAIN  # drafts in this round
    leader: str = PLAIN  # of the arms that always propose, plain decoding included
    emitted: int = 0
    saved: float = 0.0  # plain passes that drafts saved so far, less those that they cost
    drafted: set[str] = field(default_factory=set)  # arms that have drafted for this request

    @property
    def may_risk(self) -> bool:
        """Whether the answer may lose more on arms that are not known."""
        return self.saved > -(TUNING.risk + TUNING.risk_share * self.emitted)

    @property
    def risk_budget(self) -> float:
        """Plain passes that one copy may cost: a small start, and all that drafts have saved.

        Where rows are dear a long copy takes the time of many tokens. Two failed ones would make
        the whole answer slower than plain decoding, however well copies do on average. The start grows with
        the answer: where a second row costs as much as five, copies of one row save nothing, and would
        never become longer.
        """
        return TUNING.risk + TUNING.risk_share * self.emitted + max(0.0, self.saved)

    def count(self, tokens: int, passes: float) -> None:
        """One round: its tokens, and the plain passes that its seconds would have paid for."""
        self.emitted += tokens
        self.saved += tokens - passes if self.arm != PLAIN else 0.0

    def first_draft(self) -> bool:
        """Whether the arm drafted for the first time: it read the prompt, so its time says nothing."""
        if self.arm in self.drafted:
            return False
        self.drafted.add(self.arm)
        if self.arm in self.reading:
            self.reading.clear()  # they share a draft model
        return True


class ArmSpeedups:
    """One estimator for every arm: tokens over plain passes, of the answer, its kind, and the session.

    Each of the three starts from the one after it, the session's from a guess. Nothing else leads to
    a trial: an arm that was not measured has its guess, so it drafts until it is measured to be
    slower; while it does not draft its counts fade, so it is asked again some time. An answer
    draws on arms that are not known only as long as it has not lost more than it may.
    """

    def __init__(self, drafters: Mapping[str, Drafter], cost: PassCost) -> None:
        """``drafters``: the arms that always propose, by name."""
        self._drafters, self._cost = drafters, cost
        self.session = {name: Speedup() for name in drafters}
        self._tasks: dict[str, dict[str, Speedup]] = {}
        self._guesses: dict[str, float] = {}
        self._usual_tokens = 0.0  # of an answer

    def start(self, context: Context) -> RequestState:
        """A request that has measured nothing."""
        task = self._tasks.setdefault(context.task, {name: Speedup() for name in self.session})
        for name, drafter in self._drafters.items():
            highest = {"highest": TUNING.guess} if drafter.starts_empty else {}
            found = speedup_from_prior(context.priors.get(name), **highest)
            for known in (self.session, task):
                if found is not None and known[name].rounds == 0:
                    known[name] = replace(found)
        own = {}
        for name, session in self.session.items():
            weight = min(TUNING.start_weight, TUNING.guess_weight + session.trials)
            own[name] = Speedup().with_prior(self._usual(context.task, name), weight)
        return RequestState(context.task, own, self._readings(context))

    def value(self, state: RequestState, name: str) -> float:
        """The speedup that is expected of an arm in this request."""
        return 1.0 if name == PLAIN else state.speedups[name].value

    def leader(self, state: RequestState) -> str:
        """The arm of the largest speedup; plain decoding where none pays."""
        worth = {name: self._worth(state, name) for name in self.session}
        best = max(worth, key=worth.__getitem__, default=PLAIN)
        least = worth.get(state.leader, 1.0) * TUNING.stickiness
        if best != state.leader and worth.get(best, 0.0) > max(1.0, least):
            state.leader = best
        if worth.get(state.leader, 1.0) < 1:
            state.leader = PLAIN
        return state.leader

    def measure(self, state: RequestState, tokens: int, passes: float) -> None:
        """A round of one of these arms, or of another one: what did not draft is known less well."""
        memory = TUNING.session_memory
        for name, session in self.session.items():
            own, task = state.speedups[name], self._tasks[state.task][name]
            if name == state.arm:
                own.count(tokens, passes, TUNING.request_memory)
                session.count(tokens, passes, memory)
                task.count(tokens, passes, memory)
            else:
                weight = (1 - memory) * TUNING.start_weight
                own.add(weight * self._usual(state.task, name), weight, memory)
                session.fade(memory)
                task.fade(memory)

    def end(self, state: RequestState) -> None:
        """An answer is over."""
        self._usual_tokens += TUNING.length_rate * (state.emitted - self._usual_tokens)

    def _usual(self, task: str, name: str) -> float:
        """The speedup of an arm in answers of this kind."""
        usual = self.session[name].share(self._guess(name), TUNING.guess_weight)
        return self._tasks[task][name].share(usual, TUNING.start_weight)

    def _worth(self, state: RequestState, name: str) -> float:
        """The speedup with what is not known yet in its favour, and with what has to be read first."""
        speedup = self.value(state, name)
        if not state.may_risk:
            return 0.0
        if self.session[name].rounds >= TUNING.trial_rounds:
            speedup *= 1 + TUNING.credit / sqrt(max(1, state.speedups[name].rounds))
        reading = state.reading.get(name, 0.0)
        left = max(TUNING.least_left, state.emitted, self._usual_tokens - state.emitted)
        return left / (left / speedup + reading)

    def _readings(self, context: Context) -> dict[str, float]:
        """Plain passes that arms with a cache of their own need for the prompt."""
        plain = self._cost.seconds(1, len(context.ids))
        return {
            name: seconds / plain
            for name, drafter in self._drafters.items()
            if (seconds := drafter.prefill_seconds(context)) is not None
        }

    def _guess(self, name: str) -> float:
        """The speedup of an arm that was not measured yet."""
        if name not in self._guesses:
            step = self._drafters[name].step_seconds
            self._guesses[name] = expected_speedup(self._cost, step) if step else TUNING.guess
        return self._guesses[name]


def expected_speedup(cost: PassCost, step: float) -> float:
    """The speedup of chains with the usual acceptance; at least 1.

    ``step`` is the seconds of a draft step. A chain of k tokens, each accepted with chance a,
    brings 1 + a + .. + a^k tokens (SmartSpec, arXiv 2406.14066) in k steps and a pass of k + 1
    rows; the best k counts, 0 included.
    """
    passes = cost.each(range(1, TUNING.longest_chain + 2))
    tokens, best = 1.0, 1.0
    for length, seconds in enumerate(passes[1:], 1):
        tokens += TUNING.acceptance**length
        best = max(best, tokens * passes[0] / (seconds + length * step))
    return best
