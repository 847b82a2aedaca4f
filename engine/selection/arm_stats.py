"""Standings: what a session measured of the arms that always propose, and which of them leads."""

from collections.abc import Mapping
from dataclasses import replace

from engine.interfaces.drafter import Context, Drafter
from engine.request import PLAIN
from engine.selection.request_state import FAST, RequestState, TaskStats, optimistic
from engine.statistics.speedup import FASTEST, SLOW, CopyShare, Speedup, speedup_from_prior

GUESS, GUESSED = 1.3, 6.0  # pace of an arm at first; plain passes that this guess counts for
MEMORY = 10.0  # plain passes that it counts for at the start of a request
RIVAL_CREDIT = 0.3  # for luck, as ``CREDIT``, of an arm that another one is compared with
SETTLED = 10**6  # rounds after which a pace is taken for what it is: plain's is by definition
MOST_LOST = 0.95  # plain passes that an arm may lose before it counts as one that does not pay
CLEARLY_LESS = 0.75  # of the session's pace: more than luck takes from an answer
STICKINESS = 1.05  # another arm must be this much faster
USUAL_RATE = 0.3  # of the newest answer in the length of a usual one
UNDRAFTED = 2  # rounds of a trial in a row without a draft that end it
RECONSIDERED = 8  # tokens after which a favourite is chosen anew, if nothing was measured before
READING = 2.0  # on the price of reading: about every other round is another arm's
LEAST_LEFT = 32  # tokens that an answer is expected to go on for


class ArmStats:
    """The session tells arms apart, which takes more rounds than an answer has.

    The answer itself tells whether any of them pays, beginning from what the session measured, or
    answers of its kind where that is more: a draft model that brings two tokens a pass in chats
    brings three in word problems, so that copies that do in the one do not in the other. What an arm
    reads before its first draft is part of what it costs, so that a long prompt and a short answer
    may make it not worth it.
    """

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        """By arm: those that always propose."""
        self._drafters = drafters
        self.paces = {name: Speedup() for name in drafters}
        self.silent: set[str] = set()  # arms whose length policy drafted nothing on trial
        self.remembers = False  # earlier sessions told of some of them
        self.usual_tokens = 0.0  # of an answer
        self._news = 0  # rounds that were measured
        self._kinds: dict[str, TaskStats] = {}

    def start(self, context: Context) -> dict[str, Speedup]:
        """The paces that a request begins with, plain's among them."""
        return {PLAIN: Speedup(1.0, 1.0, SETTLED)} | {
            n: self._start(context, n) for n in self.paces
        }

    def kind(self, task: str) -> TaskStats:
        """What was measured of this kind of task, which its answers add to."""
        return self._kinds.setdefault(
            task, TaskStats({name: Speedup() for name in self.paces}, CopyShare())
        )

    def favourite(self, match: RequestState) -> str:
        """The arm of this round; a comparison takes long beside a pass, so only after news."""
        known = self._news, match.emitted // RECONSIDERED
        if match.judged != known:
            match.judged, match.favourite = known, self._chosen(match)
        return match.favourite

    def left(self, match: RequestState) -> float:
        """Tokens to come that nobody copies: as many as there were, unless answers go on for longer."""
        left = max(LEAST_LEFT, match.emitted, self.usual_tokens - match.emitted)
        return left * match.kind.origins.drafted

    def ended(self, match: RequestState) -> None:
        """An answer is over."""
        self.usual_tokens += USUAL_RATE * (match.emitted - self.usual_tokens)

    def measure(self, match: RequestState, tokens: int, passes: float, *, drafted: bool) -> None:
        """A round of the arm that plays, which is one of these."""
        name = match.playing
        match.paces[name].add(tokens, passes, FAST)
        for pace in (self.paces[name], match.kind.paces[name]):
            pace.add(tokens, passes, SLOW)
        self._listen(match, drafted=drafted)
        if self.paces[name].lost >= MOST_LOST or name in self.silent:
            match.stint = 0

    def heard(self, name: str) -> None:
        """There is news of an arm, if it is one of these."""
        self._news += name in self.paces

    def _start(self, context: Context, name: str) -> Speedup:
        """The session's pace, or the kind's where it is higher.

        Where copies draft most rounds, those that are left are the hard ones: a lower pace of the
        kind may say no more than that. Before the session has one, what earlier sessions measured, or
        a guess.
        """
        highest = GUESS if self._drafters[name].starts_empty else FASTEST
        found = speedup_from_prior(context.priors.get(name), highest)
        kind = self.kind(context.task).paces
        if kind[name].rounds == 0 and found is not None:
            kind[name] = replace(found)
        if self.paces[name].rounds == 0 and found is not None:
            self.paces[name], self.remembers = found, True
        if self.paces[name].rounds == 0:
            return Speedup().guessed(GUESS, GUESSED)
        session = self.paces[name].weighing(MEMORY)
        own = kind[name].guessed(session.value, MEMORY).weighing(MEMORY)
        return own if own.value > session.value else session

    def _chosen(self, match: RequestState) -> str:
        """The arm that promises most; plain where none of them pays."""
        best = max(self.paces, key=lambda name: self._worth(match, name), default=PLAIN)
        if self._worth(match, best) <= STICKINESS * self._worth(match, match.favourite):
            best = match.favourite
        return best if optimistic(match.paces[best]) >= 1 else PLAIN

    def _worth(self, match: RequestState, name: str) -> float:
        """The pace that an arm promises, with what it must read first; 0 where it loses now."""
        pace, reading = self._pace(match, name), match.reading.get(name, 0.0)
        if pace == 0 or reading == 0:
            return pace
        left = self.left(match)
        return left / (left / pace + READING * reading)

    def _pace(self, match: RequestState, name: str) -> float:
        """The session's word on an arm, unless this answer clearly says less; 0 where it loses now."""
        if name == PLAIN:
            return 1.0
        session = self.paces[name]
        if session.rounds == 0 or session.lost >= MOST_LOST or name in self.silent:
            return 0.0  # its trial comes, or came
        usual = session.hoped(GUESS, GUESSED, RIVAL_CREDIT)
        now = optimistic(match.paces[name])
        if now <= 1:
            return 0.0
        return now if now < CLEARLY_LESS * usual else usual

    def _listen(self, match: RequestState, *, drafted: bool) -> None:
        """A trial without drafts ends, and its pace is no reason to hope."""
        match.undrafted = 0 if drafted else match.undrafted + 1
        if drafted:
            self.silent.discard(match.playing)
        elif match.stint and match.undrafted >= UNDRAFTED:
            self.silent.add(match.playing)
