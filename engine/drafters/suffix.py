"""Suffix decoding (arXiv 2411.04975): continue what this and earlier requests said after the same words."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from engine.drafting.match_confidence import MatchConfidence, MatchConfidences
from engine.drafting.ngram_candidates import FINISHED, OWN, Continuations, Source
from engine.drafting.suffix_index import SuffixIndex
from engine.drafting.tuning import TUNING
from engine.interfaces.drafter import (
    FLOOR,
    Budget,
    Context,
    Drafter,
    DrafterResources,
    Outcome,
    StopRule,
)
from engine.interfaces.target import Capability
from engine.request import Option
from engine.speculation.tree import DraftTree, single

NAME = "suffix"
SLIGHT = 1 / 16  # of the floor: what is less likely is left out; rounds to come count the rest
HISTORY = Option(  # 200,000 tokens take some 60 MB
    "history", "tokens of finished answers to remember; 0: none", 200_000, 0, 100_000_000
)


@dataclass
class _Running:
    """One request: its text so far, and the longest match of each origin in the last draft."""

    ids: Sequence[int]  # the engine's own growing list: at the end it has the last round's tokens
    confidences: tuple[MatchConfidence, ...]  # by origin
    index: SuffixIndex = field(default_factory=SuffixIndex)
    foremost: list[tuple[Source, list[int]]] = field(default_factory=list)  # and what follows there


class Suffix(Drafter):
    """A tree out of the request's own text and those of finished requests; needs no model.

    Every place where the newest words occurred before is a witness for what followed there; what they say
    together is described in ``engine.drafting.ngram_candidates``. What a match of some length is worth is measured
    separately in this request and in finished ones: where the same form is filled in with other words, what
    earlier answers said is the worse witness.

    Finished texts live in the memory of this engine only, at most ``history`` tokens of them, and
    are gone with it. Nothing is written to disk; unloading the model forgets them.
    """

    title = "Suffix lookup"
    summary = "Continues the last words as this answer and earlier ones continued them."
    elsewhere = "suffix"
    accepted = "were copied from earlier text"
    max_draft = Budget(depth=32, nodes=32)
    stop_rules = frozenset({StopRule.PRICES})
    default_length = "priced"
    proposes_rarely = True
    copies_from = frozenset({"this text", "finished texts"})

    options = (HISTORY,)

    def __init__(self, parts: DrafterResources) -> None:
        """Remember nothing yet."""
        self._trees = Capability.TREE in parts.target.offers
        self._finished = SuffixIndex(int(HISTORY.of(parts.options)))
        self._running: dict[int, _Running] = {}
        self._own, self._others = MatchConfidences(), MatchConfidences()

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context; the root alone where nothing is likely enough."""
        return [self._one(c, b) for c, b in zip(batch, budgets, strict=True)]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Count how often the longest matches were right, whether or not they were proposed."""
        for outcome in outcomes:
            running = self._running.get(outcome.context.request)
            if running is not None and running.foremost:
                emitted = outcome.emitted
                for source, expected in running.foremost:
                    running.confidences[source.origin].learn(source.length, expected, emitted)
                running.foremost.clear()

    @override
    def forget(self, request: int, slot: int) -> None:
        """The request's text joins the finished ones."""
        running = self._running.pop(request, None)
        if running is not None:
            self._finished.add(running.ids)

    @property
    def finished_texts(self) -> list[list[int]]:
        """Token ids of the finished requests that are remembered."""
        return self._finished.texts

    @override
    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """What matches in this request's own text were worth: ``MatchConfidence.shares``.

        Finished texts are gone with the engine, and what matches in them were worth with them.
        """
        running = self._running.get(request)
        return running.confidences[0].shares() if running is not None else ((), 0.0)

    def _run(self, context: Context) -> _Running:
        if context.request not in self._running:
            own = self._own.start(context.task, context.priors.get(NAME))
            other = self._others.start(context.task, None)
            self._running[context.request] = _Running(context.ids, (own, other))
        return self._running[context.request]

    def _one(self, context: Context, budget: Budget) -> DraftTree:
        running = self._run(context)
        running.ids = context.ids
        running.foremost.clear()
        if min(budget.depth, budget.nodes) < 1:
            return single(context.ids[-1])
        running.index.extend(context.copyable(len(running.index)))
        sources = self._sources(running.index, context.ids[-TUNING.longest_match :])
        if not sources:
            return single(context.ids[-1])
        longest = {source.origin: source for source in reversed(sources)}.values()
        running.foremost += [(source, source.following(budget.depth)) for source in longest]
        found = Continuations(context.ids[-1], sources, budget.depth, running.confidences)
        if budget.hopeless(found.likeliest):
            return single(context.ids[-1])
        least = 0.0 if budget.exact else SLIGHT * (budget.floor or FLOOR)
        found.grow(context.stop_tokens, least)
        # prices also count what rounds to come can copy
        most = max(budget.nodes, self.max_draft.nodes) if budget.prices else budget.nodes
        ranked = found.ranked() if self._trees else found.path(budget.depth)
        return _cut(found, ranked[:most], budget)

    def _sources(self, own: SuffixIndex, tail: Sequence[int]) -> list[Source]:
        """Longest match first; equal ones own first, then newest first."""
        found = [Source(m.length, OWN, m.text, m.end) for m in own.matches(tail)]
        found += [Source(m.length, FINISHED, m.text, m.end) for m in self._finished.matches(tail)]
        return sorted(found, key=lambda source: (-source.length, source.origin))


def _cut(found: Continuations, ranked: Sequence[int], budget: Budget) -> DraftTree:
    """Of these nodes the first ones that are worth it, as many as the budget allows."""
    worth = budget.worth([found.scores[node] for node in ranked], copied=True)
    kept = [0, *sorted(ranked[: worth.drafted])]
    place = {node: i for i, node in enumerate(kept)}
    parents = [-1, *(place[found.parents[node]] for node in kept[1:])]
    tokens = tuple([found.tokens[node] for node in kept])
    return DraftTree(tokens, tuple(parents), expected=worth.expected, later=worth.later)
