"""What a session measured of the arms that always propose, and which of them leads."""

from collections.abc import Mapping
from dataclasses import replace

from engine.interfaces.drafter import Context, Drafter
from engine.request import PLAIN
from engine.selection.request_state import RequestState, TaskStats
from engine.selection.tuning import TUNING
from engine.statistics.decayed import Decayed, Speedup, speedup_from_prior

CERTAIN = (
    10**6
)  # rounds after which an upper bound is the value: plain decoding has 1 by definition


class ArmStats:
    """The session ranks the arms, since that takes more rounds than one answer has.

    The answer itself decides whether an arm pays. It starts from the speedup of the session, or of
    its kind of task where that is higher: a draft model that brings two tokens a pass in chats may
    bring three in word problems. What an arm reads before its first draft is part of its cost.
    """

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        """``drafters``: the arms that always propose, by name."""
        self._drafters = drafters
        self.speedups = {name: Speedup() for name in drafters}
        self.silent: set[str] = set()  # arms whose length policy drafted nothing on trial
        self.has_history = False  # earlier sessions measured some of them
        self.usual_tokens = 0.0  # of an answer
        self._news = 0  # rounds that were measured
        self._tasks: dict[str, TaskStats] = {}

    def start(self, context: Context) -> dict[str, Speedup]:
        """The speedups that a request starts with, plain decoding's included."""
        plain = {PLAIN: Speedup(1.0, 1.0, CERTAIN)}
        return plain | {name: self._start(context, name) for name in self.speedups}

    def task(self, name: str) -> TaskStats:
        """What was measured of this kind of task."""
        if name not in self._tasks:
            evidence = TUNING.evidence
            speedups = {arm: Speedup() for arm in self.speedups}
            self._tasks[name] = TaskStats(speedups, Decayed(evidence, evidence))
        return self._tasks[name]

    def leader(self, state: RequestState) -> str:
        """The leader of this round; it is chosen again only after news, since that takes time."""
        known = self._news, state.emitted // TUNING.reconsider_tokens
        if state.leader_asked != known:
            state.leader_asked, state.leader = known, self._chosen(state)
        return state.leader

    def left(self, state: RequestState) -> float:
        """Tokens to come that are not copied: as many as so far, or up to the usual length."""
        left = max(TUNING.least_left, state.emitted, self.usual_tokens - state.emitted)
        return left * state.task.not_copied.share()

    def end(self, state: RequestState) -> None:
        """An answer is over."""
        self.usual_tokens += TUNING.length_rate * (state.emitted - self.usual_tokens)

    def measure(self, state: RequestState, tokens: int, passes: float, *, drafted: bool) -> None:
        """A round of one of these arms."""
        arm = state.arm
        state.speedups[arm].count(tokens, passes, TUNING.request_memory)
        for speedup in (self.speedups[arm], state.task.speedups[arm]):
            speedup.count(tokens, passes, TUNING.session_memory)
        self._note_draft(state, drafted=drafted)
        if self.speedups[arm].lost >= TUNING.max_lost or arm in self.silent:
            state.trial_rounds = 0

    def note_round(self, arm: str) -> None:
        """A round is over; that is news if it was one of these arms'."""
        self._news += arm in self.speedups

    def _start(self, context: Context, name: str) -> Speedup:
        """The session's speedup, or the task's where it is higher.

        A lower one of the task may only mean that copies took its easy rounds. Before the session
        has one, what earlier sessions measured, or a guess.
        """
        task = self.task(context.task).speedups
        prior = context.priors.get(name)
        empty = self._drafters[name].starts_empty
        found = speedup_from_prior(prior, TUNING.guess) if empty else speedup_from_prior(prior)
        if task[name].rounds == 0 and found is not None:
            task[name] = replace(found)
        if self.speedups[name].rounds == 0 and found is not None:
            self.speedups[name], self.has_history = found, True
        if self.speedups[name].rounds == 0:
            return Speedup().with_prior(TUNING.guess, TUNING.guess_weight)
        weight = TUNING.start_weight
        session = self.speedups[name].limited(weight)
        own = task[name].with_prior(session.value, weight).limited(weight)
        return own if own.value > session.value else session

    def _chosen(self, state: RequestState) -> str:
        """The arm of the largest speedup; plain decoding where none pays."""
        best = max(self.speedups, key=lambda name: self._net_speedup(state, name), default=PLAIN)
        least = TUNING.stickiness * self._net_speedup(state, state.leader)
        if self._net_speedup(state, best) <= least:
            best = state.leader
        return best if state.upper_bound(best) >= 1 else PLAIN

    def _net_speedup(self, state: RequestState, name: str) -> float:
        """The speedup of an arm with what it must read first; 0 where it loses now."""
        speedup, reading = self._speedup(state, name), state.reading.get(name, 0.0)
        if speedup == 0 or reading == 0:
            return speedup
        left = self.left(state)
        return left / (left / speedup + TUNING.reading_price * reading)

    def _speedup(self, state: RequestState, name: str) -> float:
        """The session's speedup, unless this answer's is clearly lower; 0 where the arm loses now."""
        if name == PLAIN:
            return 1.0
        session = self.speedups[name]
        if session.rounds == 0 or session.lost >= TUNING.max_lost or name in self.silent:
            return 0.0  # its trial is to come, or was lost
        usual = session.upper_bound(TUNING.rival_credit, TUNING.guess, TUNING.guess_weight)
        now = state.upper_bound(name)
        if now <= 1:
            return 0.0
        return now if now < TUNING.clearly_less * usual else usual

    def _note_draft(self, state: RequestState, *, drafted: bool) -> None:
        """A trial without drafts ends, and its speedup counts for nothing."""
        state.empty_rounds = 0 if drafted else state.empty_rounds + 1
        if drafted:
            self.silent.discard(state.arm)
        elif state.trial_rounds and state.empty_rounds >= TUNING.empty_rounds:
            self.silent.add(state.arm)
