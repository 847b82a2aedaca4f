"""Auto: lets, per request and round, that drafter draft which measured fastest; plain is one of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from engine.decode.tree import DraftTree, single
from engine.protocols import Budget, Capability, Context, Outcome, Parts, farthest

PLAIN = "none"
OPTIMISM = 1.4  # pace that proposals of a declining arm are believed to have before the first one
DOUBT = 0.1  # plain passes by which a steady arm is believed to be as fast as plain at first
EARLIER = 15.0  # most plain passes that what earlier sessions measured counts for
MEMORY = 6.0  # plain passes that it counts for at the start of a request
CREDIT, RIVAL_CREDIT = 0.3, 0.6  # for luck: share of a pace over the root of its rounds
SETTLED = 10**6  # rounds after which a pace is taken for what it is: plain's is by definition
SLOW, FAST = 0.995, 0.92  # what is left per round: of the session's pace, of the request's own
CLEARLY_LESS = 0.75  # of the session's pace: more than luck takes from an answer
STICKINESS = 1.05  # another arm must be this much faster
ADVANTAGE = 1.05  # of a proposal over the favourite: what is easy to copy is easy to draft, too
STINT, PROBE = 3, 2  # rounds of a trial, the first of which reads the prompt; of another look
APART = 8  # rounds between two trials: no answer pays for all of them
PROBE_FIRST, PROBE_LAST = 64, 512  # rounds before the runner-up is tried again, doubling
WORTH_A_PROBE = 0.8  # share of the best pace
SHORT, MIDDLE = 3, 8  # drafted tokens: a longer proposal of a declining arm rests on more evidence

Key = tuple[str, int]  # arm, class of its proposal's length; always 0 for arms that never decline


@dataclass
class _Pace:
    """Plain passes' worth of tokens over plain passes' worth of seconds, both faded."""

    tokens: float
    passes: float
    rounds: int = 0

    @property
    def value(self) -> float:
        return self.tokens / self.passes

    @property
    def promise(self) -> float:
        """What the arm may turn out to be: a few unlucky rounds are no verdict."""
        return self.lucky(CREDIT)

    def lucky(self, credit: float) -> float:
        """The pace with so much credit."""
        return self.value * (1 + credit / math.sqrt(max(1, self.rounds)))

    def add(self, tokens: float, passes: float, forgetting: float) -> None:
        self.tokens = forgetting * self.tokens + tokens
        self.passes = forgetting * self.passes + passes
        self.rounds += 1

    def weighing(self, passes: float) -> "_Pace":
        """The same pace with the weight of at most so many plain passes."""
        weight = min(passes, self.passes)
        return _Pace(weight * self.value, weight, self.rounds)


@dataclass
class _Match:
    """The arms of one request."""

    paces: dict[Key, _Pace]
    playing: Key = (PLAIN, 0)
    favourite: str = PLAIN  # of the arms that always propose, plain among them
    stint: int = 0  # rounds that the arm on trial still has
    on_trial: str = PLAIN
    read: set[str] = field(default_factory=set)  # arms that have drafted for this request
    sums: dict[str, _Pace] = field(default_factory=dict)  # by arm, nothing faded: for people


class Auto:
    """Arbitrates by pace: seconds that plain decoding would need over seconds needed.

    Plain decoding has pace 1 by definition, so nothing is spent on measuring it. One of the drafters
    that always propose is the favourite, and stays it until another is clearly faster: the session
    tells drafters apart, which takes more rounds than an answer has; the answer itself tells
    whether any of them pays. One that was never tried is tried for a few rounds, long after the
    last such trial, so that no answer pays for all of them. Those that propose only now and then
    are asked first, and draft where such a proposal was worth more than the favourite's: a pace
    is kept for short and for long proposals, since long ones mean more.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset()
    length: ClassVar[Budget] = Budget(depth=64, nodes=256)
    declines: ClassVar[bool] = False

    def __init__(self, parts: Parts) -> None:
        """Take the arms of ``parts``."""
        self.arms = parts.arms
        self._cost = parts.cost
        others = [name for name in parts.arms if name != PLAIN]
        self._declining = [name for name in others if parts.arms[name].drafter.declines]
        self._steady = [name for name in others if not parts.arms[name].drafter.declines]
        self._session = {name: _Pace(DOUBT, DOUBT) for name in self._steady}
        self._known: dict[Key, _Pace] = {}  # of declining arms, from requests that ended
        self._matches: dict[int, _Match] = {}
        self._since_trial, self._since_probe, self._wait = APART, 0, PROBE_FIRST

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """Each request's arm drafts; requests with the same arm together."""
        trees: dict[int, DraftTree] = {}
        queues = {c.request: self._order(self._match(c)) for c in batch}
        while len(trees) < len(batch):
            groups: dict[str, list[int]] = {}
            for i, context in enumerate(batch):
                if i not in trees:
                    groups.setdefault(queues[context.request].pop(0), []).append(i)
            for name, members in groups.items():
                found = self._ask(name, [batch[i] for i in members], [budgets[i] for i in members])
                trees |= {
                    i: tree
                    for i, tree in zip(members, found, strict=True)
                    if self._takes(self._matches[batch[i].request], name, tree)
                }
        return [trees[i] for i in range(len(batch))]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Pass on to the arms that drafted; measure their pace."""
        for name, arm in self.arms.items():
            heard = [o for o in outcomes if self.playing(o.context.request) == name]
            if heard:
                arm.drafter.observe(heard)
                arm.policy.observe(heard)
        for outcome in outcomes:
            self._measure(outcome)

    def forget(self, request: int, slot: int) -> None:
        """Remember what the request measured of each arm; drop the rest."""
        match = self._matches.pop(request, None)
        for arm in self.arms.values():
            arm.drafter.forget(request, slot)
            arm.policy.forget(request)
        if match is not None:
            declining = {k: p for k, p in match.paces.items() if k[0] in self._declining}
            self._known |= {key: pace for key, pace in declining.items() if pace.rounds}

    def playing(self, request: int) -> str:
        """The arm that drafted this round."""
        match = self._matches.get(request)
        return match.playing[0] if match else PLAIN

    def reason(self, request: int) -> str:
        """One sentence: what was measured of every arm that ran."""
        match = self._matches.get(request)
        if match is None or not match.sums:
            return "auto: nothing was decoded"
        ran = sorted(match.sums.items(), key=lambda entry: -entry[1].rounds)
        said = [f"{name} {sums.value:.2f}x plain in {sums.rounds} passes" for name, sums in ran]
        return f"auto, by measured pace: {', '.join(said)}"

    def _match(self, context: Context) -> _Match:
        if context.request not in self._matches:
            paces = {(PLAIN, 0): _Pace(1.0, 1.0, SETTLED)}
            paces |= {(name, 0): self._steady_start(context, name) for name in self._steady}
            keys = [(name, size) for name in self._declining for size in range(3)]
            paces |= {key: self._declining_start(context, key) for key in keys}
            self._matches[context.request] = _Match(paces)
        return self._matches[context.request]

    def _steady_start(self, context: Context, name: str) -> _Pace:
        """The session's pace; before it has one, what earlier sessions measured."""
        found = _prior(context, name)
        if self._session[name].rounds == 0 and found is not None:
            self._session[name] = found
        return self._session[name].weighing(MEMORY)

    def _declining_start(self, context: Context, key: Key) -> _Pace:
        known = self._known.get(key) or _prior(context, key[0])
        return _Pace(OPTIMISM, 1.0) if known is None else known.weighing(MEMORY)

    def _order(self, match: _Match) -> list[str]:
        """Arms to ask until one is taken; plain ends the list and is always taken."""
        first = self._trial(match)
        steady = sorted(self._steady, key=lambda name: -self._worth(match, name))
        if steady and self._worth(match, steady[0]) > STICKINESS * self._worth(
            match, match.favourite
        ):
            match.favourite = steady[0]
        if match.paces[match.favourite, 0].promise < 1:
            match.favourite = PLAIN
        declining = sorted(self._declining, key=lambda name: -_best(match, name))
        rest = [name for name in steady if self._worth(match, name) > 1]
        order = list(dict.fromkeys([*first, *declining, match.favourite, *rest, PLAIN]))
        return order[: order.index(PLAIN) + 1]

    def _worth(self, match: _Match, name: str) -> float:
        """The session's word on an arm, unless this answer clearly says less; 0 where it loses now."""
        if name == PLAIN:
            return 1.0
        if self._session[name].rounds == 0:
            return 0.0  # its trial comes
        now, usual = match.paces[name, 0].promise, self._session[name].lucky(RIVAL_CREDIT)
        if now <= 1:
            return 0.0
        return now if now < CLEARLY_LESS * usual else usual

    def _trial(self, match: _Match) -> list[str]:
        """The arm on trial: one never tried; now and then, of those nearly as fast, the least known."""
        self._since_trial += 1
        self._since_probe += 1
        if match.stint == 0:
            match.on_trial, match.stint = self._untried() or self._probe(match)
        if match.stint == 0:
            return []
        match.stint -= 1
        self._since_trial = 0
        return [match.on_trial]

    def _untried(self) -> tuple[str, int] | None:
        trying = {match.on_trial for match in self._matches.values() if match.stint}
        new = [n for n in self._steady if self._session[n].rounds == 0 and n not in trying]
        return (new[0], STINT) if new and self._since_trial >= APART else None

    def _probe(self, match: _Match) -> tuple[str, int]:
        if self._since_probe < self._wait:
            return PLAIN, 0
        self._since_probe, self._wait = 0, min(2 * self._wait, PROBE_LAST)
        rivals = [name for name in self._steady if name != match.favourite]
        best = max([1.0, *(self._session[name].promise for name in self._steady)])
        worth = [n for n in rivals if self._session[n].promise >= WORTH_A_PROBE * best]
        chosen = min(worth, key=lambda name: self._session[name].rounds, default=PLAIN)
        return chosen, PROBE if worth else 0

    def _ask(
        self, name: str, batch: Sequence[Context], budgets: Sequence[Budget]
    ) -> list[DraftTree]:
        if name == PLAIN:
            return [single(context.ids[-1]) for context in batch]
        arm = self.arms[name]
        own = farthest(arm.drafter)
        longest = [
            replace(b, depth=min(own.depth, b.depth), nodes=min(own.nodes, b.nodes))
            for b in budgets
        ]
        return arm.drafter.draft(batch, arm.policy.budgets(batch, longest))

    def _takes(self, match: _Match, name: str, tree: DraftTree) -> bool:
        """Whether this proposal is the round's; sets who plays."""
        if not tree.drafted and name != PLAIN:
            return False
        key = (name, _size(tree) if name in self._declining else 0)
        best = max(1.0, match.paces[match.favourite, 0].promise)
        tried = name in self._declining and match.paces[key].rounds > 0
        if tried and match.paces[key].lucky(RIVAL_CREDIT) < ADVANTAGE * best:
            return False
        match.playing = key
        return True

    def _measure(self, outcome: Outcome) -> None:
        match = self._matches[outcome.context.request]
        name, _ = match.playing
        plain = self._cost.seconds(outcome.batch, len(outcome.context.ids) * outcome.batch)
        seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
        tokens = len(outcome.verdict.path)
        sums = match.sums.setdefault(name, _Pace(0.0, 0.0))
        sums.tokens, sums.passes = sums.tokens + tokens, sums.passes + seconds / plain
        sums.rounds += 1
        if name in self._session and name not in match.read:
            match.read.add(name)  # it read the prompt as well, which says nothing of a round
        elif name != PLAIN:
            match.paces[match.playing].add(tokens, seconds / plain, FAST)
            if name in self._session:
                self._session[name].add(tokens, seconds / plain, SLOW)
                luck = RIVAL_CREDIT if self._session[name].rounds < STINT else 0.0
                if self._session[name].lucky(luck) < 1:
                    match.stint = 0  # no luck makes that fast


def _prior(context: Context, name: str) -> _Pace | None:
    """What earlier sessions measured of an arm."""
    prior = context.priors.get(name)
    if prior is None or prior.pace is None or prior.pace_weight <= 0:
        return None
    weight, pace = min(EARLIER, prior.pace_weight), min(max(prior.pace, 0.7), 4.0)
    return _Pace(weight * pace, weight, round(prior.pace_weight))


def _best(match: _Match, name: str) -> float:
    """What an arm's best class of proposals promises."""
    return max(pace.lucky(RIVAL_CREDIT) for (arm, _), pace in match.paces.items() if arm == name)


def _size(tree: DraftTree) -> int:
    """Class of a proposal's length."""
    return (tree.drafted > SHORT) + (tree.drafted > MIDDLE)
