"""Format: what a request's format leaves no choice in, such as the names that a schema demands.

Where one byte alone can follow, and then one again, there is a text that the model has to write, and
only the tokens that it spells it with are open: its tokenizer's, most often. Space that may stand or
be left out is taken as this answer did it before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

import numpy as np
from typing_extensions import override

from engine.grammar.vocabulary import BYTES
from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources, StopRule
from engine.speculation.grammar_mask import GrammarMatcher
from engine.speculation.tree import DraftTree, single

LONGEST = 64  # bytes that are looked ahead
BEFORE = 2  # tokens before the draft that may change how it is spelled
FORGETTING = 0.98  # weight of the past per offer
FIRST = ((0.7, 1.0), (1.7, 2.0))  # (kept, judged) before any was: first tokens, and later ones
SPACES = frozenset(b" \t\n\r")
CLOSES = [*b",}"]  # what may follow a property
OPENS = {ord("["): ord("]"), ord("{"): ord("}")}
LISTED = 64  # letters that listed names may begin with; any name has more
HABITS: dict[int | tuple[int, int], bytes] = {ord(","): b" ", ord(":"): b" "}


@dataclass
class Spelled:
    """How often tokens were said as they were offered: the first of an offer, and later ones."""

    counts: list[tuple[float, float]] = field(default_factory=lambda: list(FIRST))

    def learn(self, offered: Sequence[int], said: Sequence[int]) -> None:
        """What was said where this was offered."""
        for at, (one, other) in enumerate(zip(offered, said, strict=False)):
            kept, judged = self.counts[at > 0]
            self.counts[at > 0] = FORGETTING * kept + (one == other), FORGETTING * judged + 1
            if one != other:
                return

    def chances(self, many: int) -> list[float]:
        """Chances that the first 1, 2, ... of ``many`` tokens are said."""
        first, later = (kept / judged for kept, judged in self.counts)
        return list(accumulate([first, *[later] * (many - 1)], mul)) if many else []


class Foregone:
    """One answer's: what its format lets it say alone."""

    def __init__(self, guide: GrammarMatcher, spelled: Spelled) -> None:
        self._guide, self._spelled = guide, spelled
        self._words = guide.compiled.vocabulary
        self._state = guide.compiled.byte_start()
        self._start = self._read = guide.start
        self._fits = True  # the answer is one that the bytes can follow
        self._offered: Sequence[int] = ()
        self._habits = dict(HABITS)
        self._solid, self._gap = 0, b""  # the last byte that was no space, and the space since

    def tokens(self, ids: Sequence[int]) -> tuple[int, ...]:
        """What has to follow ``ids``; none where there is a choice."""
        self._hear(ids[self._read :])
        self._read = len(ids)
        text, over = self._ahead() if self._fits else (b"", False)
        stops = self._guide.stops
        found = tuple(stops) if over and len(stops) == 1 else ()
        if text:
            near = ids[max(self._start, len(ids) - BEFORE) :]
            before = b"".join(self._words.tokens[token] for token in near)
            spelled = self._words.spell(before, text)
            found = (*spelled, *found) if spelled else ()
        self._offered = found
        return found

    def _hear(self, fresh: Sequence[int]) -> None:
        """What became of the last offer, with any drafter, and where this answer puts space."""
        if fresh:
            self._spelled.learn(self._offered, fresh)
        self._fits = self._fits and self._walk(self._words.in_bytes(fresh))
        for token in fresh:
            for byte in self._words.tokens[token]:
                if byte in SPACES:
                    self._gap += bytes([byte])
                    continue
                self._habits[self._solid, byte] = self._habits[self._solid] = self._gap
                self._solid, self._gap = byte, b""

    def _ahead(self) -> tuple[bytes, bool]:
        """The text that has to follow, and whether nothing may follow it."""
        text, solid, steps = bytearray(), self._solid, 0
        free = not self._gap  # space was not written here already
        over = False
        while len(text) < LONGEST:
            live, ends = self._live()
            firm = [sign for sign in live if sign not in SPACES]
            if firm == CLOSES and self._names_are_free():
                firm = CLOSES[1:]
            elif solid in OPENS and len(firm) == 2:  # few lists and objects are empty
                firm = [one for one in firm if one != OPENS[solid]]
            if len(firm) != 1 or firm[0] >= BYTES:  # a choice, or a mark, which no text spells
                over = ends and not firm
                break
            [byte] = firm
            gap = self._usual(solid, byte) if free and len(live) > 1 else b""
            if not self._walk([*gap, byte]):
                gap = b""
                self._walk([byte])
            steps += len(gap) + 1
            text += gap + bytes(firm)
            solid, free = byte, True
        self._state.rollback(steps)
        self._fits = not self._state.is_error()
        return bytes(text), over

    def _names_are_free(self) -> bool:
        """Whether a comma would lead to a property that no schema lists: few answers have one."""
        if not self._walk(b',"'):
            return False
        free = len(self._live()[0]) > LISTED
        self._state.rollback(2)
        return free

    def _usual(self, solid: int, byte: int) -> bytes:
        """The space that this answer puts between two signs."""
        return self._habits.get((solid, byte), self._habits.get(solid, b""))

    def _live(self) -> tuple[list[int], bool]:
        """The next bytes and marks that are allowed, and whether the answer may end."""
        bits = np.unpackbits(
            np.frombuffer(self._state.compute_bitmask(), np.uint8), bitorder="little"
        )
        found = np.flatnonzero(bits).tolist()
        ends = bool(found) and found[-1] == BYTES + len(self._words.marks)
        return found[:-1] if ends else found, ends

    def _walk(self, path: Sequence[int]) -> bool:
        """Read all of this, or nothing of it."""
        done = self._state.try_consume_tokens(list(path))
        if 0 < done < len(path):
            self._state.rollback(done)
        return done == len(path)


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
            self._running[context.request] = Foregone(context.grammar, self._spelled)
        tokens = self._running[context.request].tokens(context.ids)
        most = min(budget.depth, budget.nodes, len(tokens))
        many, expected, _ = budget.worth(self._spelled.chances(most))
        drafted = (context.ids[-1], *tokens[:many])
        return DraftTree(drafted, tuple(range(-1, many)), expected=expected)
