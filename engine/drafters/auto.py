"""Auto: lets, per request and round, that drafter draft which measured fastest; plain is one of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from engine.decode.tree import DraftTree, single
from engine.forecast import forecast
from engine.pace import FASTEST, SLOW, Luck, Origins, Pace, remembered
from engine.protocols.drafting import (
    Budget,
    Context,
    Outcome,
    Parts,
    Reader,
    RowPrices,
    Rule,
    Stepping,
    farthest,
    stands_in_for,
    starts_empty,
)
from engine.protocols.target import Capability

PLAIN = "none"
GUESS, GUESSED = 1.3, 6.0  # pace of an arm at first; plain passes that this guess counts for
MEMORY = 10.0  # plain passes that it counts for at the start of a request
CREDIT, RIVAL_CREDIT = 0.15, 0.3  # for luck: share of a pace over the root of its rounds
SETTLED = 10**6  # rounds after which a pace is taken for what it is: plain's is by definition
MOST_LOST = 0.95  # plain passes that an arm may lose before it counts as one that does not pay
FAST = 0.9  # what is left per round of the request's own pace; SLOW: of the session's
CLEARLY_LESS = 0.75  # of the session's pace: more than luck takes from an answer
STICKINESS = 1.05  # another arm must be this much faster
BY_COPIES = 0.5  # of what copies lately brought, that tokens to come are expected to share in
MARGIN = 1.15  # on a proposal's price: one that just breaks even adds nothing but risk
STAKE = 1.0  # plain passes that an answer may bet on a proposal, with all that it won so far
STINT, PROBE = 6, 3  # rounds of a trial, the first of which reads the prompt; of another look
APART = 8  # rounds between two trials: no answer pays for all of them
SHORT = 8  # tokens that an answer has, or usually gets, before a trial: fewer cannot win it back
USUAL_RATE = 0.3  # of the newest answer in the length of a usual one
PROBE_FIRST, PROBE_LAST = 64, 512  # rounds before the runner-up is tried again, doubling
WORTH_A_PROBE = 0.8  # share of the best pace
UNDRAFTED = 2  # rounds of a trial in a row without a draft that end it
REPRICED = 16  # rounds for which the prices of rows are believed
RECONSIDERED = 8  # tokens after which a favourite is chosen anew, if nothing was measured before
READING = 2.0  # on the price of reading: about every other round is another arm's
LEAST_LEFT = 32  # tokens that an answer is expected to go on for
AFFORDABLE = 0.01  # plain passes per token to come that reading for a trial may take


@dataclass
class _Match:
    """The arms of one request."""

    paces: dict[str, Pace]  # of arms that always propose
    whole: Pace  # of all arms
    reading: dict[str, float]  # plain passes before an arm can draft; none once one of them did
    origins: Origins  # of the tokens of answers of this kind
    playing: str = PLAIN
    favourite: str = PLAIN  # of the arms that always propose, plain among them
    emitted: int = 0
    won: float = 0.0  # plain passes that drafts saved so far, those that they cost taken off
    judged: tuple[int, int] = (-1, 0)  # what was known when the favourite was chosen
    stint: int = 0  # rounds that the arm on trial still has
    on_trial: str = PLAIN
    undrafted: int = 0  # rounds of the trial in a row
    read: set[str] = field(default_factory=set)  # arms that have drafted for this request
    sums: dict[str, Pace] = field(default_factory=dict)  # by arm, nothing faded: for people

    @property
    def stake(self) -> float:
        """Plain passes that a proposal may cost: a copy that pays is soon a long one, others cost little.

        Where rows are dear a long copy takes the time of many tokens. Two that went wrong would make
        a whole answer slower than plain, however well such bets turn out on average.
        """
        return STAKE + max(0.0, self.won)

    @property
    def rate(self) -> float:
        """The pace at which tokens come otherwise: never less than plain's, which can always be had.

        A text that was just copied made tokens cheap, but what is left of it goes on at less: at the
        whole pace of such a burst no short copy was worth its rows.
        """
        copied = 1 + BY_COPIES * (self.whole.value - 1)
        return max(1.0, self.paces[self.favourite].value, copied)


class Auto:
    """Arbitrates by pace: seconds that plain decoding would need over seconds needed.

    Plain decoding has pace 1 by definition, so nothing is spent on measuring it. One of the drafters
    that always propose is the favourite, and stays it until another is clearly faster: the session
    tells drafters apart, which takes more rounds than an answer has; the answer itself tells
    whether any of them pays. One that was never tried is tried for a few rounds, long after the
    last such trial, so that no answer pays for all of them: first the one that promises most by
    what a step of its drafts takes, and never one that could not even at its best be the fastest.
    Those that propose only now and then are asked first. They say what they expect of a proposal,
    whose rows have the price that the request's pace gives them, and draft where that brings more
    than the favourite would; what became of earlier proposals corrects them. An arm with a cache of
    its own must read the prompt first, which a long prompt and a short answer may make it not worth.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset()
    length: ClassVar[Budget] = Budget(depth=64, nodes=256)
    heeds: ClassVar[frozenset[Rule]] = frozenset()
    policy: ClassVar[str] = "fixed"
    declines: ClassVar[bool] = False

    def __init__(self, parts: Parts) -> None:
        """Take the arms of ``parts`` but those that another one stands in for.

        Two that look into the same text cost twice, and of two expectations of the same tokens the
        higher one is more often too high.
        """
        covered = {name for arm in parts.arms.values() for name in stands_in_for(arm.drafter)}
        self.arms = {name: arm for name, arm in parts.arms.items() if name not in covered}
        self._cost = parts.cost
        others = [name for name in self.arms if name != PLAIN]
        self._declining = [name for name in others if self.arms[name].drafter.declines]
        self._steady = [name for name in others if not self.arms[name].drafter.declines]
        self._session = {name: Pace() for name in self._steady}
        self._whole = Pace().guessed(1.0, MEMORY)  # of all arms
        self._silent: set[str] = set()  # arms whose length policy drafted nothing on trial
        self._luck: dict[str, dict[str, Luck]] = {}  # of declining arms, by kind of task
        drafters = [self.arms[name].drafter for name in self._declining]
        self._longest = max((farthest(drafter).nodes for drafter in drafters), default=0)
        self._prices: dict[int, RowPrices] = {}  # by requests
        self._news = 0  # rounds that arms which always propose were measured in
        self._asked = 0
        self._matches: dict[int, _Match] = {}
        self._usual_tokens = 0.0  # of an answer
        self._origins: dict[str, Origins] = {}  # by kind of task
        self._forecasts: dict[str, tuple[float, float]] = {}
        self._since_trial, self._since_probe, self._wait = APART, 0, PROBE_FIRST

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """Each request's arm drafts; requests with the same arm together."""
        trees: dict[int, DraftTree] = {}
        steady: dict[str, list[int]] = {}
        copying: list[int] = []
        for i, context in enumerate(batch):
            match = self._match(context)
            match.playing = self._trial(match) or self._favourite(match)
            if match.stint == 0:
                copying.append(i)
        trees |= self._copies(batch, budgets, copying)
        for i, context in enumerate(batch):
            if i not in trees:
                steady.setdefault(self._matches[context.request].playing, []).append(i)
        for name, members in steady.items():
            found = self._ask(name, [batch[i] for i in members], [budgets[i] for i in members])
            trees |= dict(zip(members, found, strict=True))
        return [trees[i] for i in range(len(batch))]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Pass on to the arms that drafted; measure their pace."""
        by_arm: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            by_arm.setdefault(self.playing(outcome.context.request), []).append(outcome)
        for name, arm in self.arms.items():
            heard = by_arm.get(name, [])
            # what is copied can be compared with what was said whoever drafted
            copied = outcomes if name in self._declining else heard
            if copied:
                arm.drafter.observe(copied)
            if heard:
                arm.policy.observe(heard)
        for outcome in outcomes:
            self._measure(outcome)

    def forget(self, request: int, slot: int) -> None:
        """Drop what the request measured; the session keeps its part."""
        match = self._matches.pop(request, None)
        if match is not None:
            self._usual_tokens += USUAL_RATE * (match.emitted - self._usual_tokens)
        for arm in self.arms.values():
            arm.drafter.forget(request, slot)
            arm.policy.forget(request)

    def playing(self, request: int) -> str:
        """The arm that drafted this round."""
        match = self._matches.get(request)
        return match.playing if match else PLAIN

    def reason(self, request: int) -> str:
        """One sentence: what was measured of every arm that ran."""
        match = self._matches.get(request)
        if match is None or not match.sums:
            return "auto: nothing was decoded"
        ran = sorted(match.sums.items(), key=lambda entry: -entry[1].rounds)
        said = [
            f"{name} {sums.value:.2f}x plain in {sums.rounds} pass{'es' * (sums.rounds != 1)}"
            for name, sums in ran
        ]
        return f"auto, by measured pace: {', '.join(said)}"

    def _match(self, context: Context) -> _Match:
        if context.request not in self._matches:
            paces = {PLAIN: Pace(1.0, 1.0, SETTLED)}
            paces |= {name: self._start(context, name) for name in self._steady}
            if context.task not in self._luck:
                self._luck[context.task] = self._believed(context)
            whole = self._whole.weighing(MEMORY)
            origins = self._origins.setdefault(context.task, Origins())
            self._matches[context.request] = _Match(paces, whole, self._readings(context), origins)
        return self._matches[context.request]

    def _start(self, context: Context, name: str) -> Pace:
        """The session's pace; before it has one, what earlier sessions measured, or a guess."""
        highest = GUESS if starts_empty(self.arms[name].drafter) else FASTEST
        found = remembered(context.priors.get(name), highest)
        if self._session[name].rounds == 0 and found is not None:
            self._session[name] = found
        if self._session[name].rounds == 0:
            return Pace().guessed(GUESS, GUESSED)
        return self._session[name].weighing(MEMORY)

    def _believed(self, context: Context) -> dict[str, Luck]:
        """At a kind's first round: where copies were slower than what else ran, they had no luck."""
        best = max([1.0, *(pace.value for pace in self._session.values())])
        lucks = {name: Luck() for name in self._declining}
        for name, luck in lucks.items():
            if (found := remembered(context.priors.get(name), best)) is not None:
                luck.believe(found.value / best)
        return lucks

    def _favourite(self, match: _Match) -> str:
        """The steady arm of this round; a comparison takes long beside a pass, so only after news."""
        known = self._news, match.emitted // RECONSIDERED
        if match.judged != known:
            match.judged, match.favourite = known, self._chosen(match)
        return match.favourite

    def _chosen(self, match: _Match) -> str:
        """The steady arm that promises most; plain where none of them pays."""
        best = max(self._steady, key=lambda name: self._worth(match, name), default=PLAIN)
        if self._worth(match, best) <= STICKINESS * self._worth(match, match.favourite):
            best = match.favourite
        return best if _promise(match.paces[best]) >= 1 else PLAIN

    def _readings(self, context: Context) -> dict[str, float]:
        """Plain passes that arms with a cache of their own need for the prompt."""
        plain = self._cost.seconds(1, len(context.ids))
        drafters = {name: self.arms[name].drafter for name in self._steady}
        return {
            name: drafter.reading(context) / plain
            for name, drafter in drafters.items()
            if isinstance(drafter, Reader)
        }

    def _left(self, match: _Match) -> float:
        """Tokens to come that nobody copies: as many as there were, unless answers go on for longer."""
        left = max(LEAST_LEFT, match.emitted, self._usual_tokens - match.emitted)
        return left * match.origins.drafted

    def _worth(self, match: _Match, name: str) -> float:
        """The pace that an arm promises, with what it must read first; 0 where it loses now."""
        pace, reading = self._pace(match, name), match.reading.get(name, 0.0)
        if pace == 0 or reading == 0:
            return pace
        left = self._left(match)
        return left / (left / pace + READING * reading)

    def _pace(self, match: _Match, name: str) -> float:
        """The session's word on an arm, unless this answer clearly says less; 0 where it loses now."""
        if name == PLAIN:
            return 1.0
        session = self._session[name]
        if session.rounds == 0 or session.lost >= MOST_LOST or name in self._silent:
            return 0.0  # its trial comes, or came
        usual = session.hoped(GUESS, GUESSED, RIVAL_CREDIT)
        now = _promise(match.paces[name])
        if now <= 1:
            return 0.0
        return now if now < CLEARLY_LESS * usual else usual

    def _trial(self, match: _Match) -> str:
        """The arm on trial: one never tried; now and then, of those nearly as fast, the least known."""
        self._since_trial += 1
        self._since_probe += 1
        if match.stint == 0:
            match.on_trial, match.stint = self._untried(match) or self._probe(match)
            match.undrafted = 0
            if match.stint == 0:
                return ""
        else:
            match.stint -= 1
        self._since_trial = 0
        return match.on_trial if match.stint else ""

    def _untried(self, match: _Match) -> tuple[str, int] | None:
        if max(match.emitted, self._usual_tokens) < SHORT or self._since_trial < APART:
            return None
        untried = [name for name in self._steady if self._session[name].rounds == 0]
        if not untried:
            return None
        trying = {match.on_trial for match in self._matches.values() if match.stint}
        new = [
            name
            for name in untried
            if name not in trying and self._hopeful(match, name) and self._affordable(match, name)
        ]
        return (max(new, key=lambda name: self._forecast(name)[0]), STINT) if new else None

    def _forecast(self, name: str) -> tuple[float, float]:
        """Paces of an arm that was never tried: what can be hoped for, and what it hardly exceeds."""
        if name not in self._forecasts:
            drafter = self.arms[name].drafter
            step = drafter.step_seconds if isinstance(drafter, Stepping) else 0.0
            self._forecasts[name] = forecast(self._cost, step) if step else (GUESS, inf)
        return self._forecasts[name]

    def _hopeful(self, match: _Match, name: str) -> bool:
        """Whether an arm was tried, or could at its best be faster than all that were are here."""
        if self._session[name].rounds:
            return True
        tried = [arm for arm in self._steady if self._session[arm].rounds]
        fastest = max([1.0, *(match.paces[arm].value for arm in tried)])
        return self._forecast(name)[1] > fastest

    def _affordable(self, match: _Match, name: str) -> bool:
        """Whether the answer can bear what the arm reads before its trial."""
        return match.reading.get(name, 0.0) <= AFFORDABLE * self._left(match)

    def _probe(self, match: _Match) -> tuple[str, int]:
        if self._since_probe < self._wait:
            return PLAIN, 0
        self._since_probe, self._wait = 0, min(2 * self._wait, PROBE_LAST)
        others = (n for n in self._steady if n != match.favourite and self._hopeful(match, n))
        rivals = [name for name in others if self._affordable(match, name)]
        best = max([1.0, *(_promise(pace) for pace in self._session.values())])
        least = max(1.0, WORTH_A_PROBE * best)  # who is slower than plain is no runner-up
        worth = [n for n in rivals if _promise(self._session[n]) >= least]
        chosen = min(worth, key=lambda name: self._session[name].rounds, default=PLAIN)
        return chosen, PROBE if worth else 0

    def _ask(
        self, name: str, batch: Sequence[Context], budgets: Sequence[Budget]
    ) -> list[DraftTree]:
        if name == PLAIN:
            return [single(context.ids[-1]) for context in batch]
        arm = self.arms[name]
        own = farthest(arm.drafter)
        longest = [budget.within(own) for budget in budgets]
        return arm.drafter.draft(batch, arm.policy.budgets(batch, longest))

    def _copies(
        self, batch: Sequence[Context], budgets: Sequence[Budget], members: Sequence[int]
    ) -> dict[int, DraftTree]:
        """Of these requests those for which a declining arm proposes more than the favourite brings."""
        found: dict[int, DraftTree] = {}
        if not members:
            return found
        prices = self._row_prices(batch)
        matches = [self._matches[batch[i].request] for i in members]
        rates, best = [m.rate for m in matches], [self._usual(m) for m in matches]
        for name in self._declining:
            drafter = self.arms[name].drafter
            lucks = [self._luck[batch[i].task][name].value for i in members]
            own = farthest(drafter)
            asked = [
                prices.budget(own, budgets[i], rate / luck, match.stake)
                for i, match, rate, luck in zip(members, matches, rates, lucks, strict=True)
            ]
            trees = drafter.draft([batch[i] for i in members], asked)
            for at, (match, luck, tree) in enumerate(zip(matches, lucks, trees, strict=True)):
                price = MARGIN * prices.rows[tree.drafted]
                gain = 1 + luck * tree.expected - rates[at] * (1 + price)
                if tree.drafted and gain > best[at]:
                    best[at], found[members[at]], match.playing = gain, tree, name
        return found

    def _row_prices(self, batch: Sequence[Context]) -> RowPrices:
        """Tokens that rows must bring at plain's pace; they change slowly, and asking takes 70 us."""
        if self._asked % REPRICED == 0:
            self._prices.clear()
        self._asked += 1
        if len(batch) not in self._prices:
            together = sum(len(context.ids) for context in batch)
            rows = self._cost.prices(1.0, self._longest, len(batch), together)
            self._prices[len(batch)] = RowPrices.of(rows)
        return self._prices[len(batch)]

    def _usual(self, match: _Match) -> float:
        """Tokens that a round of the favourite brings more than the request's rounds on average.

        Over many rounds the most tokens come from taking, in each, what brings most in this sense.
        """
        pace = match.paces[match.favourite]
        return pace.length * (_promise(pace) - match.rate)

    def _measure(self, outcome: Outcome) -> None:
        match = self._matches[outcome.context.request]
        name = match.playing
        plain = self._cost.seconds(outcome.batch, len(outcome.context.ids) * outcome.batch)
        seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
        tokens = len(outcome.verdict.path)
        match.emitted += tokens
        match.origins.add(tokens, copied=name in self._declining)
        match.won += tokens - seconds / plain if name != PLAIN else 0.0
        match.sums.setdefault(name, Pace()).add(tokens, seconds / plain)
        for arm, luck in self._luck[outcome.context.task].items():
            if arm == name:
                luck.add(tokens - 1, outcome.tree.expected)
            else:
                luck.fade()
        self._news += name in self._session
        if name in self._session and name not in match.read:
            match.read.add(name)  # it read the prompt as well, which says nothing of a round
            if name in match.reading:
                match.reading.clear()  # they share a draft model
            return
        match.whole.add(tokens, seconds / plain, FAST)
        self._whole.add(tokens, seconds / plain, SLOW)
        if name not in self._session:
            return
        match.paces[name].add(tokens, seconds / plain, FAST)
        self._session[name].add(tokens, seconds / plain, SLOW)
        self._listen(match, drafted=outcome.tree.drafted > 0)
        if self._session[name].lost >= MOST_LOST or name in self._silent:
            match.stint = 0

    def _listen(self, match: _Match, *, drafted: bool) -> None:
        """A trial without drafts ends, and its pace is no reason to hope."""
        match.undrafted = 0 if drafted else match.undrafted + 1
        if drafted:
            self._silent.discard(match.playing)
        elif match.stint and match.undrafted >= UNDRAFTED:
            self._silent.add(match.playing)


def _promise(pace: Pace) -> float:
    """What an arm may turn out to be."""
    return pace.lucky(CREDIT)
