"""Prompt lookup: continue the newest earlier occurrence of the longest matching suffix."""

from collections.abc import Sequence
from typing import ClassVar

from engine.decode.suffix_automaton import SuffixAutomaton
from engine.decode.tree import DraftTree, chain
from engine.protocols import Budget, Capability, Context, Outcome, Parts

MIN_MATCH = 3  # shorter matches in prose are mostly chance


class Lookup:
    """Deterministic chains out of the request's own text; needs no model and no memory to speak of."""

    needs: ClassVar[frozenset[Capability]] = frozenset()
    length: ClassVar[Budget] = Budget(depth=12, nodes=12)

    def __init__(self, parts: Parts) -> None:
        """Start with no text; ``min_match`` of the options overrides the shortest match."""
        self._min_match = int(parts.options.get("min_match", MIN_MATCH))
        self._texts: dict[int, SuffixAutomaton] = {}

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """A chain for every context whose suffix occurred before, else the root alone."""
        return [self._one(c, b.depth) for c, b in zip(batch, budgets, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Accepted tokens join the text at the next draft."""

    def forget(self, request: int, slot: int) -> None:
        """Drop the request's automaton."""
        self._texts.pop(request, None)

    def _one(self, context: Context, depth: int) -> DraftTree:
        text = self._texts.setdefault(context.request, SuffixAutomaton())
        text.extend(context.ids[len(text.text) :])
        return chain([context.ids[-1], *text.continuation(depth, self._min_match)])
