"""Format: what a request's format leaves no choice in, such as the names that a schema demands.

Where one byte alone can follow, and then one again, there is a text that the model has to write, and
only the tokens that it spells it with are open: its tokenizer's, most often. Space that may stand or
be left out is taken as this answer did it before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from typing_extensions import override

from engine.grammar.states import DEAD
from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources, StopRule
from engine.speculation.grammar_mask import GrammarMatcher
from engine.speculation.tree import DraftTree, single

LONGEST = 64  # bytes that are looked ahead
BEFORE = 2  # tokens before the draft that may change how it is spelled
FORGETTING = 0.98  # weight of the past per offer
FIRST = ((0.7, 1.0), (1.7, 2.0))  # (kept, judged) before any was: first tokens, and later ones
SPACES = b" \t\n"
HABITS = {ord(","): b" ", ord(":"): b" "}


@dataclass
class Spelled:
    """How often tokens stood as they were offered; the first of an offer, and those behind it."""

    counts: list[tuple[float, float]] = field(default_factory=lambda: list(FIRST))

    def learn(self, offered: Sequence[int], said: Sequence[int]) -> None:
        """What was said where this was offered."""
        for at, (one, other) in enumerate(zip(offered, said, strict=False)):
            kept, judged = self.counts[at > 0]
            self.counts[at > 0] = FORGETTING * kept + (one == other), FORGETTING * judged + 1
            if one != other:
                return

    def chances(self, many: int) -> list[float]:
        """That the first 1, 2, ... of so many tokens are said."""
        first, later = (kept / judged for kept, judged in self.counts)
        return list(accumulate([first, *[later] * (many - 1)], mul)) if many else []


class Foregone:
    """One answer's: what its format lets it say alone."""

    def __init__(self, guide: GrammarMatcher, prompt: int, spelled: Spelled) -> None:
        self._guide, self._spelled = guide, spelled
        self._states, self._words = guide.masks.states, guide.masks.spelling
        self._start = self._read = prompt
        self._offered: Sequence[int] = ()
        self._habits = dict(HABITS)
        self._solid, self._gap = 0, b""  # the last byte that was no space, and the space since

    def tokens(self, ids: Sequence[int]) -> tuple[int, ...]:
        """What has to follow behind ``ids``; none where there is a choice."""
        self._hear(ids[self._read :])
        self._read = len(ids)
        text, over = self._ahead(self._guide.advance(ids))
        stops = self._guide.stops
        found = tuple(stops) if over and len(stops) == 1 else ()
        if text:
            near = ids[max(self._start, len(ids) - BEFORE) :]
            before = b"".join(self._words.tokens[token] for token in near)
            found = (*self._words.spell(before, text), *found)
        self._offered = found
        return found

    def _hear(self, fresh: Sequence[int]) -> None:
        """What became of the last offer, whoever drafted, and where this answer puts space."""
        if fresh:
            self._spelled.learn(self._offered, fresh)
        for token in fresh:
            for byte in self._words.tokens[token]:
                if byte in SPACES:
                    self._gap += bytes([byte])
                    continue
                self._habits[self._solid] = self._gap
                self._solid, self._gap = byte, b""

    def _ahead(self, state: int) -> tuple[bytes, bool]:
        """The text that has to follow, and whether nothing may follow it."""
        text, solid = bytearray(), self._solid
        free = not self._gap  # space was not written here already
        while len(text) < LONGEST:
            live = self._states.live(state)
            firm = bytes(byte for byte in live if byte not in SPACES)
            if len(firm) != 1:
                return bytes(text), not live
            gap = self._habits.get(solid, b"") if free and len(live) > 1 else b""
            if self._states.walk(state, gap + firm) == DEAD:
                gap = b""
            text += gap + firm
            state, solid, free = self._states.walk(state, gap + firm), firm[0], True
        return bytes(text), False


class Format(Drafter):
    """A chain of what has to follow; never anything without a format."""

    title = "Format"
    summary = "Drafts the text that a requested format leaves no choice in."
    accepted = "were fixed by the format"
    max_draft = Budget(depth=32, nodes=32)
    stop_rules = frozenset({StopRule.PRICES})
    default_length = "priced"
    proposes_rarely = True
    needs_grammar = True
    listed = False

    def __init__(self, parts: DrafterResources) -> None:
        """Nothing is known of how this model spells."""
        self._spelled = Spelled()
        self._running: dict[int, Foregone] = {}

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One chain for each context; the root alone where there is a choice."""
        return [self._one(c, b) for c, b in zip(batch, budgets, strict=True)]

    @override
    def forget(self, request: int, slot: int) -> None:
        """Drop what the answer's habits were; how this model spells is kept."""
        self._running.pop(request, None)

    def _one(self, context: Context, budget: Budget) -> DraftTree:
        if context.grammar is None:
            return single(context.ids[-1])
        if context.request not in self._running:
            foregone = Foregone(context.grammar, context.prompt_length, self._spelled)
            self._running[context.request] = foregone
        tokens = self._running[context.request].tokens(context.ids)
        most = min(budget.depth, budget.nodes, len(tokens))
        many, expected, _ = budget.worth(self._spelled.chances(most))
        drafted = (context.ids[-1], *tokens[:many])
        return DraftTree(drafted, tuple(range(-1, many)), expected=expected)
