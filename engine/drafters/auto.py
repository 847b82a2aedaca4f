"""Auto: lets, per request and round, that drafter draft which measured fastest; plain is one of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from engine.decode.tree import DraftTree, single
from engine.protocols import Budget, Capability, Context, Outcome, Parts

PLAIN = "none"
OPTIMISM = 1.4  # pace that an arm is believed to have before its first round
TRIAL = 2.0  # plain passes that optimism counts for
MEMORY = 6.0  # plain passes that what earlier requests measured counts for
FORGETTING = 0.92  # per round: a text that changes its nature is noticed within a dozen
STICKINESS = 1.05  # another arm must be this much faster
PROBE_FIRST, PROBE_LAST = 24, 512  # rounds before the runner-up is tried again, doubling
WORTH_A_PROBE = 0.75  # share of the best pace


@dataclass
class _Pace:
    """Plain passes' worth of tokens over plain passes' worth of seconds, both faded."""

    tokens: float
    passes: float
    rounds: int = 0
    untried: bool = False  # nothing is known but optimism

    @property
    def value(self) -> float:
        return self.tokens / self.passes

    def add(self, tokens: float, passes: float) -> None:
        self.tokens = FORGETTING * self.tokens + tokens
        self.passes = FORGETTING * self.passes + passes
        self.rounds += 1
        self.untried = False


@dataclass
class _Match:
    """The arms of one request."""

    paces: dict[str, _Pace]
    playing: str = PLAIN
    favourite: str = PLAIN
    since_probe: int = 0
    wait: int = PROBE_FIRST
    rounds: dict[str, int] = field(default_factory=dict)


class Auto:
    """Arbitrates by pace: seconds that plain decoding would need over seconds needed.

    Plain decoding has pace 1 by definition, so nothing is spent on measuring it. Drafters that
    propose only now and then are asked first where they are faster, and count only when they do;
    else the next arm drafts, so they combine with a drafter that always proposes.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset()
    length: ClassVar[Budget] = Budget(depth=64, nodes=256)
    declines: ClassVar[bool] = False

    def __init__(self, parts: Parts) -> None:
        """Take the arms of ``parts``."""
        self.arms = parts.arms
        self._cost = parts.cost
        self._known: dict[str, _Pace] = {}  # from requests that ended
        self._matches: dict[int, _Match] = {}

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """Each request's arm drafts; requests with the same arm together."""
        trees: dict[int, DraftTree] = {}
        waiting = {c.request: self._order(c) for c in batch}
        while waiting:
            groups: dict[str, list[int]] = {}
            for i, context in enumerate(batch):
                if context.request in waiting:
                    groups.setdefault(waiting[context.request].pop(0), []).append(i)
            for name, members in groups.items():
                found = self._ask(name, [batch[i] for i in members], [budgets[i] for i in members])
                for i, tree in zip(members, found, strict=True):
                    if tree.drafted or not waiting[batch[i].request]:
                        self._settle(batch[i].request, name, tree)
                        trees[batch[i].request] = tree
                        del waiting[batch[i].request]
        return [trees[c.request] for c in batch]

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
        for name, arm in self.arms.items():
            arm.drafter.forget(request, slot)
            arm.policy.forget(request)
            if match and match.paces[name].rounds:
                self._known[name] = match.paces[name]

    def playing(self, request: int) -> str:
        """The arm that drafted this round."""
        match = self._matches.get(request)
        return match.playing if match else PLAIN

    def reason(self, request: int) -> str:
        """One sentence: what was measured of every arm that ran."""
        match = self._matches.get(request)
        if match is None or not match.rounds:
            return "auto: nothing was decoded"
        ran = sorted(match.rounds, key=lambda name: -match.rounds[name])
        said = [f"{n} {match.paces[n].value:.2f}x plain in {match.rounds[n]} passes" for n in ran]
        return f"auto, by measured pace: {', '.join(said)}"

    def _match(self, context: Context) -> _Match:
        if context.request not in self._matches:
            paces = {name: self._start(context, name) for name in self.arms}
            self._matches[context.request] = _Match(paces)
        return self._matches[context.request]

    def _start(self, context: Context, name: str) -> _Pace:
        if name == PLAIN:
            return _Pace(1.0, 1.0)
        prior = context.priors.get(name)
        if name in self._known:
            return _Pace(MEMORY * self._known[name].value, MEMORY)
        if prior is not None and prior.pace is not None and prior.pace_weight > 0:
            weight = min(MEMORY, prior.pace_weight)
            return _Pace(weight * min(max(prior.pace, 0.7), 8.0), weight)
        return _Pace(TRIAL * OPTIMISM, TRIAL, untried=True)

    def _order(self, context: Context) -> list[str]:
        """Arms to ask, until one proposes; plain ends the list."""
        match = self._match(context)
        ranked = sorted(match.paces, key=lambda name: -match.paces[name].value)
        best = ranked[0]
        favourite = match.favourite
        if match.paces[best].value > STICKINESS * match.paces[favourite].value:
            match.favourite = favourite = best
        order = [
            n for n in ranked if match.paces[n].value > match.paces[favourite].value / STICKINESS
        ]
        order = [n for n in order if n != favourite and self.arms[n].drafter.declines] + [favourite]
        probe = self._probe(match, ranked)
        rest = [n for n in ranked if n not in order and match.paces[n].value > 1]
        first = [n for n in ranked if match.paces[n].untried] or ([probe] if probe else [])
        order = [*first, *order, *rest, PLAIN]
        order = list(dict.fromkeys(order))
        return order[: order.index(PLAIN) + 1]

    def _probe(self, match: _Match, ranked: list[str]) -> str | None:
        match.since_probe += 1
        if match.since_probe < match.wait:
            return None
        floor = WORTH_A_PROBE * match.paces[match.favourite].value
        others = [n for n in ranked if n not in (match.favourite, PLAIN)]
        worth = [n for n in others if match.paces[n].value >= floor]
        match.since_probe, match.wait = 0, min(2 * match.wait, PROBE_LAST)
        return min(worth, key=lambda n: match.paces[n].rounds) if worth else None

    def _ask(
        self, name: str, batch: Sequence[Context], budgets: Sequence[Budget]
    ) -> list[DraftTree]:
        arm = self.arms[name]
        own = arm.drafter.length
        longest = [
            replace(b, depth=min(own.depth, b.depth), nodes=min(own.nodes, b.nodes))
            for b in budgets
        ]
        if name == PLAIN:
            return [single(context.ids[-1]) for context in batch]
        return arm.drafter.draft(batch, arm.policy.budgets(batch, longest))

    def _settle(self, request: int, name: str, tree: DraftTree) -> None:
        match = self._matches[request]
        match.playing = name if tree.drafted else PLAIN
        match.rounds[match.playing] = match.rounds.get(match.playing, 0) + 1

    def _measure(self, outcome: Outcome) -> None:
        match = self._matches[outcome.context.request]
        if match.playing == PLAIN:
            return
        plain = self._cost.seconds(outcome.batch, len(outcome.context.ids) * outcome.batch)
        seconds = outcome.draft_seconds + outcome.score_seconds + self._cost.overhead
        match.paces[match.playing].add(len(outcome.verdict.path), seconds / plain)
