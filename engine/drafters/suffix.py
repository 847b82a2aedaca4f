"""Suffix decoding (arXiv 2411.04975): continue what this and earlier requests said after the same words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, NamedTuple

from engine.decode.confidence import LONGEST, Confidence, Confidences, Following
from engine.decode.suffix_index import SuffixIndex
from engine.decode.tree import DraftTree, single
from engine.protocols.drafting import FLOOR, Budget, Context, Outcome, Parts, Rule
from engine.protocols.target import Capability

NAME = "suffix"
WITNESSES = 16  # places that may together make a token likely enough, none of which does alone
OWN, FINISHED, BEGUN = range(3)  # where a match is: see Source
SOON = Following(forgetting=0.9, first=2.0)  # of beginnings: like asks for like, for a while
HISTORY = 200_000  # tokens of finished requests that are remembered, some 60 MB


class Source(NamedTuple):
    """A place where the same words stood.

    In this request, in a finished one, or in one that was so far answered as this one is: there the
    match reaches back beyond the answer's first token.
    """

    length: int  # of the match
    origin: int  # OWN, FINISHED or BEGUN
    text: Sequence[int]
    end: int  # of the match in ``text``

    def following(self, depth: int) -> list[int]:
        """At most ``depth`` tokens that stood behind it; a period of this request runs on into itself."""
        tokens = list(self.text[self.end : self.end + depth])
        return tokens if self.origin != OWN or len(tokens) == depth else (tokens * depth)[:depth]


@dataclass
class Trie:
    """Continuations of all sources in one tree; score is the estimated probability of the path."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    scores: list[float] = field(default_factory=lambda: [1.0])
    _nodes: dict[tuple[int, int], int] = field(default_factory=dict)

    def follow(self, node: int, token: int, score: float) -> int:
        """The child of ``node`` with ``token``, made where there was none; adds to its score."""
        child = self._nodes.get((node, token))
        if child is None:
            child = self._nodes[node, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(node)
            self.scores.append(0.0)
        self.scores[child] += score
        return child

    def best(self, budget: Budget) -> DraftTree:
        """The likeliest nodes; closed under ancestors, as scores fall with depth."""
        ranked = sorted(range(1, len(self.tokens)), key=lambda n: (-self.scores[n], n))
        return self._cut(ranked[: budget.nodes], budget)

    def likeliest(self, budget: Budget) -> DraftTree:
        """The chain of likeliest children, for targets that score no trees."""
        path = [0]
        while len(path) <= min(budget.depth, budget.nodes):
            rest = range(path[-1] + 1, len(self.tokens))
            below = [n for n in rest if self.parents[n] == path[-1]]
            if not below:
                break
            path.append(max(below, key=lambda n: (self.scores[n], -n)))
        return self._cut(path[1:], budget)

    def _cut(self, ranked: Sequence[int], budget: Budget) -> DraftTree:
        """Of these nodes the first ones that are worth it."""
        worth = budget.worth([self.scores[node] for node in ranked], copied=True)
        kept = [0, *sorted(ranked[: worth.drafted])]
        place = {node: i for i, node in enumerate(kept)}
        parents = [-1, *(place[self.parents[n]] for n in kept[1:])]
        tokens = tuple(self.tokens[n] for n in kept)
        return DraftTree(tokens, tuple(parents), expected=worth.expected, later=worth.later)


@dataclass
class _Running:
    """One request: its text so far, and the longest match of each origin in the last draft."""

    ids: Sequence[int]  # the engine's own growing list: at the end it has the last round's tokens
    confidences: tuple[Confidence, ...]  # by origin
    index: SuffixIndex = field(default_factory=SuffixIndex)
    foremost: list[tuple[Source, list[int]]] = field(default_factory=list)  # and what follows there


class Suffix:
    """A tree out of the request's own text and those of finished requests; needs no model.

    Every place where the newest words stood before is a witness for what followed there. The
    longest match gets its confidence as share, the next longest that of the rest, and so on, this
    request before finished ones; equal matches share equally, which makes it their frequency. What a
    match of some length is worth is measured apart in this request and in finished ones: where the
    same form is filled in with other words, what earlier answers said is the worse witness. And apart
    from both where an answer begins as an earlier one: whether answers are alike changes with what is
    asked, so that is learnt within a few of them.

    Finished texts live in the memory of this engine only, at most ``history`` tokens of them, and
    are gone with it. Nothing is written to disk; unloading the model forgets them.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset()
    length: ClassVar[Budget] = Budget(depth=32, nodes=32)
    heeds: ClassVar[frozenset[Rule]] = frozenset({Rule.PRICES})
    policy: ClassVar[str] = "priced"
    declines: ClassVar[bool] = True
    stands_in_for: ClassVar[frozenset[str]] = frozenset({"lookup"})

    def __init__(self, parts: Parts) -> None:
        """Remember nothing yet; ``history`` of the options is how many tokens may be, 0: none."""
        self._trees = Capability.TREE in parts.target.offers
        self._finished = SuffixIndex(int(parts.options.get("history", HISTORY)))
        self._running: dict[int, _Running] = {}
        self._confidences = Confidences(), Confidences(), Confidences(SOON)  # by origin

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context; the root alone where nothing is likely enough."""
        return [self._one(c, b) for c, b in zip(batch, budgets, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Count how often the longest matches were right, whether or not they were proposed."""
        for outcome in outcomes:
            running = self._running.get(outcome.context.request)
            if running is not None and running.foremost:
                path, tree = outcome.verdict.path, outcome.tree
                emitted = [*(tree.tokens[n] for n in path[1:]), outcome.verdict.bonus]
                for source, expected in running.foremost:
                    running.confidences[source.origin].learn(source.length, expected, emitted)
                running.foremost.clear()

    def forget(self, request: int, slot: int) -> None:
        """The request's text joins the finished ones."""
        running = self._running.pop(request, None)
        if running is not None:
            self._finished.add(running.ids)

    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """What matches in this request's own text were worth: ``Confidence.shares``.

        Finished texts are gone with the engine, and what matches in them were worth with them.
        """
        running = self._running.get(request)
        return running.confidences[0].shares() if running is not None else ((), 0.0)

    def _run(self, context: Context) -> _Running:
        if context.request not in self._running:
            own, *others = self._confidences
            sure = own.start(context.task, context.priors.get(NAME))
            rest = (other.start(context.task, None) for other in others)
            self._running[context.request] = _Running(context.ids, (sure, *rest))
        return self._running[context.request]

    def _one(self, context: Context, budget: Budget) -> DraftTree:
        running = self._run(context)
        running.ids = context.ids
        running.foremost.clear()
        if min(budget.depth, budget.nodes) < 1:
            return single(context.ids[-1])
        running.index.extend(context.copyable(len(running.index)))
        said = len(context.ids) - context.prompt
        sources = self._sources(running.index, context.ids[-LONGEST:], said)
        if not sources:
            return single(context.ids[-1])
        longest = {source.origin: source for source in reversed(sources)}.values()
        running.foremost += [(source, source.following(budget.depth)) for source in longest]
        shares = list(self._shares(sources, running.confidences))
        if budget.hopeless(_likeliest(shares)):
            return single(context.ids[-1])
        least = 0.0 if budget.exact else budget.floor or FLOOR
        trie = Trie([context.ids[-1]])
        for source, share in shares:
            limits = running.confidences[source.origin], context.stop_tokens, least / WITNESSES
            self._plant(trie, source, share, limits, budget.depth)
        return trie.best(budget) if self._trees else trie.likeliest(budget)

    def _sources(self, own: SuffixIndex, tail: Sequence[int], said: int) -> list[Source]:
        """Longest match first; equal ones own first, then newest first."""
        found = [Source(m.length, OWN, m.text, m.end) for m in own.matches(tail)]
        found += [
            Source(m.length, BEGUN if m.length > said else FINISHED, m.text, m.end)
            for m in self._finished.matches(tail)
        ]
        return sorted(found, key=lambda source: (-source.length, source.origin))

    def _shares(
        self, sources: list[Source], confidences: tuple[Confidence, ...]
    ) -> Iterator[tuple[Source, float]]:
        """Probability that a source's first token comes next, in the order of the sources."""
        left = 1.0
        for (length, origin), group in groupby(sources, key=lambda source: source[:2]):
            equal, sure = list(group), confidences[origin].at(length)
            yield from ((source, left * sure / len(equal)) for source in equal)
            left *= 1 - sure

    def _plant(
        self,
        trie: Trie,
        source: Source,
        share: float,
        limits: tuple[Confidence, frozenset[int], float],
        most: int,
    ) -> None:
        """Add a source's tokens until they are too unlikely for all sources together to save them.

        A stop token ends it and is not drafted: the pass that would accept it emits it anyway.
        """
        confidence, stops, least = limits
        node = 0
        for depth, token in enumerate(source.following(most), 1):
            if share < least or token in stops:
                return
            node = trie.follow(node, token, share)
            share *= confidence.at(source.length + depth)


def _likeliest(shares: Sequence[tuple[Source, float]]) -> float:
    """The chance of the likeliest next token: nothing below it is likelier."""
    first: dict[int, float] = {}
    for source, share in shares:
        token = source.text[source.end]
        first[token] = first.get(token, 0.0) + share
    return max(first.values())
