"""Prompt lookup: continue the newest earlier occurrence of the longest matching suffix."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from engine.drafting.match_confidence import MatchConfidence, MatchConfidences
from engine.drafting.suffix_automaton import SuffixAutomaton
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, StopRule
from engine.interfaces.target import Capability
from engine.speculation.tree import DraftTree, single

NAME = "lookup"
MIN_MATCH = 1  # shorter matches are often chance, but their drafts are short as well


@dataclass
class _Text:
    """One request: its text so far, and what followed the match of the last draft."""

    confidence: MatchConfidence
    automaton: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    matched: int = 0
    expected: list[int] = field(default_factory=list)


class Lookup:
    """Deterministic chains out of the request's own text; needs no model and no memory to speak of.

    A draft is as long as the match makes it likely, by what such matches were worth so far: a
    short match gives a short draft, a text that is being copied gives a long one.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset()
    length: ClassVar[Budget] = Budget(depth=32, nodes=32)
    heeds: ClassVar[frozenset[StopRule]] = frozenset({StopRule.PRICES})
    policy: ClassVar[str] = "priced"
    declines: ClassVar[bool] = True

    def __init__(self, parts: DrafterResources) -> None:
        """Start with no text; ``min_match`` of the options overrides the shortest match."""
        self._min_match = max(1, int(parts.options.get("min_match", MIN_MATCH)))
        self._texts: dict[int, _Text] = {}
        self._confidences = MatchConfidences()

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """A chain for every context whose suffix occurred before, else the root alone."""
        return [self._one(c, b) for c, b in zip(batch, budgets, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Count how often matches were right, also beyond what was proposed of them."""
        for outcome in outcomes:
            text = self._texts.get(outcome.context.request)
            if text is not None:
                path, tree = outcome.verdict.path, outcome.tree
                emitted = [*(tree.tokens[n] for n in path[1:]), outcome.verdict.bonus]
                text.confidence.learn(text.matched, text.expected, emitted)
                text.expected = []

    def forget(self, request: int, slot: int) -> None:
        """Drop the request's text; what its matches were worth stays."""
        self._texts.pop(request, None)

    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """What this request's matches were worth: ``Confidence.shares``."""
        text = self._texts.get(request)
        return text.confidence.shares() if text is not None else ((), 0.0)

    def _text(self, context: Context) -> _Text:
        if context.request not in self._texts:
            sure = self._confidences.start(context.task, context.priors.get(NAME))
            self._texts[context.request] = _Text(sure)
        return self._texts[context.request]

    def _one(self, context: Context, budget: Budget) -> DraftTree:
        text = self._text(context)
        text.automaton.extend(context.copyable(len(text.automaton.text)))
        text.matched, _ = text.automaton.match()
        most = min(budget.depth, budget.nodes)
        text.expected = text.automaton.continuation(most, self._min_match)
        if budget.hopeless(text.confidence.at(text.matched)):
            return single(context.ids[-1])
        copied = _before(text.expected, context.stop_tokens)
        chances = text.confidence.survival(text.matched, len(copied))
        drafted, expected, later = budget.worth(chances, copied=True)
        tokens = (context.ids[-1], *copied[:drafted])
        return DraftTree(tokens, tuple(range(-1, drafted)), expected=expected, later=later)


def _before(tokens: list[int], stops: frozenset[int]) -> list[int]:
    """Up to a stop token, which need not be drafted: the pass that would accept it emits it anyway."""
    end = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[:end]
