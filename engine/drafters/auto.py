"""Auto: lets, per request and round, that drafter draft which measured fastest; plain is one of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from engine.decode.tree import DraftTree, single
from engine.protocols import Budget, Capability, Context, Outcome, Parts

PLAIN = "none"
OPTIMISM = 1.4  # pace that an arm is believed to have before its first round
TRIAL = 1.0  # plain passes that optimism counts for
MEMORY = 6.0  # plain passes that what earlier requests measured counts for
CREDIT = 0.4  # of an arm that was tried once half of this is left, then a third, and so on
SETTLED = 10**6  # rounds after which a pace is taken for what it is: plain's is by definition
FORGETTING = 0.92  # per round: a text that changes its nature is noticed within a dozen
STICKINESS = 1.05  # another arm must be this much faster
PROBE_FIRST, PROBE_LAST = 24, 512  # rounds before the runner-up is tried again, doubling
WORTH_A_PROBE = 0.75  # share of the best pace
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
        return self.value * (1 + CREDIT / (1 + self.rounds))

    def add(self, tokens: float, passes: float) -> None:
        self.tokens = FORGETTING * self.tokens + tokens
        self.passes = FORGETTING * self.passes + passes
        self.rounds += 1


@dataclass
class _Match:
    """The arms of one request."""

    paces: dict[Key, _Pace]
    playing: Key = (PLAIN, 0)
    favourite: str = PLAIN  # of the arms that always propose, plain among them
    since_probe: int = 0
    wait: int = PROBE_FIRST
    sums: dict[str, _Pace] = field(default_factory=dict)  # by arm, nothing faded: for people

    def promise(self, name: str) -> float:
        """Of the arm's best class."""
        return max(pace.promise for (arm, _), pace in self.paces.items() if arm == name)


class Auto:
    """Arbitrates by pace: seconds that plain decoding would need over seconds needed.

    Plain decoding has pace 1 by definition, so nothing is spent on measuring it. One of the drafters
    that always propose is the favourite, and stays it until another is clearly faster. Those that
    propose only now and then are asked first, and draft where such a proposal was worth more than
    the favourite's: a pace is kept for short and for long proposals, since long ones mean more.
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
        self._known: dict[Key, _Pace] = {}  # from requests that ended
        self._matches: dict[int, _Match] = {}

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
            self._known |= {key: pace for key, pace in match.paces.items() if pace.rounds}

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
            keys = [(PLAIN, 0), *((name, 0) for name in self._steady)]
            keys += [(name, size) for name in self._declining for size in range(3)]
            paces = {key: self._start(context, key) for key in keys}
            self._matches[context.request] = _Match(paces)
        return self._matches[context.request]

    def _start(self, context: Context, key: Key) -> _Pace:
        if key[0] == PLAIN:
            return _Pace(1.0, 1.0, SETTLED)
        known, prior = self._known.get(key), context.priors.get(key[0])
        if known is not None:
            return _Pace(MEMORY * known.value, MEMORY, known.rounds)
        if prior is not None and prior.pace is not None and prior.pace_weight > 0:
            weight = min(MEMORY, prior.pace_weight)
            pace = min(max(prior.pace, 0.7), 8.0)
            return _Pace(weight * pace, weight, round(prior.pace_weight))
        return _Pace(TRIAL * OPTIMISM, TRIAL)

    def _order(self, match: _Match) -> list[str]:
        """Arms to ask until one is taken; plain ends the list and is always taken."""
        steady = sorted((*self._steady, PLAIN), key=lambda name: -match.promise(name))
        if match.promise(steady[0]) > STICKINESS * match.promise(match.favourite):
            match.favourite = steady[0]
        untried = [name for name in self._steady if match.paces[name, 0].rounds == 0]
        first = untried[:1] or self._probe(match, steady)
        declining = sorted(self._declining, key=lambda name: -match.promise(name))
        rest = [name for name in steady if match.promise(name) > 1]
        order = list(dict.fromkeys([*first, *declining, match.favourite, *rest, PLAIN]))
        return order[: order.index(PLAIN) + 1]

    def _probe(self, match: _Match, steady: list[str]) -> list[str]:
        """Now and then, of the arms that are nearly as fast, the one that is known least."""
        match.since_probe += 1
        if match.since_probe < match.wait:
            return []
        match.since_probe, match.wait = 0, min(2 * match.wait, PROBE_LAST)
        floor = WORTH_A_PROBE * match.promise(match.favourite)
        others = [name for name in steady if name not in (match.favourite, PLAIN)]
        worth = [name for name in others if match.promise(name) >= floor]
        return sorted(worth, key=lambda name: match.paces[name, 0].rounds)[:1]

    def _ask(
        self, name: str, batch: Sequence[Context], budgets: Sequence[Budget]
    ) -> list[DraftTree]:
        if name == PLAIN:
            return [single(context.ids[-1]) for context in batch]
        arm = self.arms[name]
        own = arm.drafter.length
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
        best = match.promise(match.favourite)
        if name in self._declining and STICKINESS * match.paces[key].promise < best:
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
        if name != PLAIN:
            match.paces[match.playing].add(tokens, seconds / plain)


def _size(tree: DraftTree) -> int:
    """Class of a proposal's length."""
    return (tree.drafted > SHORT) + (tree.drafted > MIDDLE)
