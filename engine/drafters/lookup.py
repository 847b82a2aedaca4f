"""Prompt lookup: continue the newest earlier occurrence of the longest matching suffix."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from engine.drafting.match_confidence import MatchConfidence, MatchConfidences
from engine.drafting.ngram_candidates import OWN, Source
from engine.drafting.suffix_index import SuffixIndex
from engine.drafting.tuning import TUNING
from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources, Outcome, StopRule
from engine.request import Option
from engine.speculation.tree import DraftTree, single

NAME = "lookup"
# Matches of one token are often chance, but their drafts are short as well.
MIN_MATCH = Option(
    "min_match", "shortest match that is continued, in tokens", 1, 1, TUNING.longest_match
)


@dataclass
class _Text:
    """One request: its text so far, and what followed the match of the last draft."""

    confidence: MatchConfidence
    index: SuffixIndex = field(default_factory=SuffixIndex)
    matched: int = 0
    expected: list[int] = field(default_factory=list)


class Lookup(Drafter):
    """Deterministic chains out of the request's own text; needs no model and no memory to speak of.

    A draft is as long as the match makes it likely, by what such matches were worth so far: a
    short match gives a short draft, a text that is being copied gives a long one.
    """

    title = "Lookup"
    summary = "Continues the newest earlier place in the text that ends with the same words."
    elsewhere = "n-grams"
    accepted = "were copied from your text"
    max_draft = Budget(depth=32, nodes=32)
    stop_rules = frozenset({StopRule.PRICES})
    default_length = "priced"
    proposes_rarely = True
    copies_from = frozenset({"this text"})
    plan_when = ()
    plan_reason = "{no_draft_model}, and prompt lookup takes no memory"

    options = (MIN_MATCH,)

    def __init__(self, parts: DrafterResources) -> None:
        """Start with no text."""
        self._min_match = int(MIN_MATCH.of(parts.options))
        self._texts: dict[int, _Text] = {}
        self._confidences = MatchConfidences()

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """A chain for every context whose suffix occurred before, else the root alone."""
        return [self._one(c, b) for c, b in zip(batch, budgets, strict=True)]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Count how often matches were right, also beyond what was proposed of them."""
        for outcome in outcomes:
            text = self._texts.get(outcome.context.request)
            if text is not None:
                text.confidence.learn(text.matched, text.expected, outcome.emitted)
                text.expected = []

    @override
    def forget(self, request: int, slot: int) -> None:
        """Drop the request's text; what its matches were worth stays."""
        self._texts.pop(request, None)

    @override
    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """What this request's matches were worth: ``MatchConfidence.shares``."""
        text = self._texts.get(request)
        return text.confidence.shares() if text is not None else ((), 0.0)

    def _text(self, context: Context) -> _Text:
        if context.request not in self._texts:
            sure = self._confidences.start(context.task, context.priors.get(NAME))
            self._texts[context.request] = _Text(sure)
        return self._texts[context.request]

    def _one(self, context: Context, budget: Budget) -> DraftTree:
        text = self._text(context)
        text.index.extend(context.copyable(len(text.index)))
        matches = text.index.matches(context.ids[-TUNING.longest_match :])
        found = max(matches, key=lambda match: match.length, default=None)
        if found is None or found.length < self._min_match:
            return single(context.ids[-1])
        source = Source(found.length, OWN, found.text, found.end)
        text.matched = found.length
        text.expected = source.following(min(budget.depth, budget.nodes))
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
