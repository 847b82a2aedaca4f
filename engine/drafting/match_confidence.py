"""Confidence: how likely is the token that followed an earlier occurrence of the newest words?"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.request import Prior

LONGEST = 24  # matches beyond this many tokens are not told apart
KINDS = LONGEST.bit_length() + 1  # of matches: lengths from a power of two to the next
REMEMBERED = 48.0  # evaluated tokens that earlier sessions count for at most
CERTAIN = 0.995  # no confidence is higher, so that probabilities fall strictly along a path


@dataclass(frozen=True, slots=True)
class Following:
    """How soon a confidence follows what is measured."""

    forgetting: float = 0.99  # weight of the past per evaluated token
    first: float = 4.0  # evaluated tokens that the first guess counts for


class MatchConfidence:
    """How often the token behind a match of this length was the next one; measured, by powers of two.

    The guess (l + 1/2) / (l + 3/2) is what held over chats, sums and edits alike. Multiplied along a
    path, where each accepted token makes the match longer, it replaces the paper's draft length
    alpha * l: short matches give short drafts, and a text that is copied gives long ones.
    """

    def __init__(
        self, usual: "MatchConfidence | None" = None, following: Following | None = None
    ) -> None:
        """Start from the guess, or one request from what is ``usual``: some copy, others do not."""
        self._usual, self._following = usual, following or Following()
        self._hits, self._trials = [0.0] * KINDS, [0.0] * KINDS
        self._table: list[float | None] = []  # by length; None: nobody asked since it changed
        self.renew()

    def at(self, length: int) -> float:
        """Probability of the next token behind a match of ``length`` >= 1."""
        length = min(length, LONGEST)
        known = self._table[length]
        if known is None:
            known = self._table[length] = self._value(length)
        return known

    def survival(self, length: int, most: int) -> list[float]:
        """Probability that the first 1..most tokens behind the match are all right; it falls."""
        sure, found = 1.0, []
        for depth in range(most):
            sure *= self.at(length + depth)
            found.append(sure)
        return found

    def renew(self) -> None:
        """Take in what is ``usual`` by now."""
        self._table = [None] * (LONGEST + 1)

    def remember(self, prior: Prior | None) -> None:
        """Start from what earlier sessions measured (``shares``), unless something was learnt."""
        if prior is None or len(prior.shares) != 2 * KINDS or any(self._trials):
            return
        weight = min(prior.share_weight, REMEMBERED)
        self._hits = [weight * share for share in prior.shares[:KINDS]]
        misses = prior.shares[KINDS:]
        self._trials = [h + weight * m for h, m in zip(self._hits, misses, strict=True)]
        self.renew()

    def shares(self) -> tuple[tuple[float, ...], float]:
        """Of the tokens evaluated here those that were right, by kind of match, then those that
        were wrong; and how many they are. [2 * KINDS] shares, 1 in all, or none.
        """
        total = sum(self._trials)
        if total == 0:
            return (), 0.0
        pairs = list(zip(self._hits, self._trials, strict=True))
        return tuple([h / total for h, _ in pairs] + [(t - h) / total for h, t in pairs]), total

    def learn(self, length: int, expected: Sequence[int], emitted: Sequence[int]) -> None:
        """What followed a match of ``length``, against what the target then said."""
        noted = []
        for depth, (token, said) in enumerate(zip(expected, emitted, strict=False)):
            noted.append((min(length + depth, LONGEST).bit_length(), token == said))
            if token != said:
                break
        self.note(noted)

    def note(self, noted: Sequence[tuple[int, bool]]) -> None:
        """Tokens by kind of match, and whether they were right; what is usual learns them, too."""
        if self._usual is not None:
            self._usual.note(noted)
        hits, trials = self._hits, self._trials
        for kind, hit in noted:
            hits[kind] = self._following.forgetting * hits[kind] + hit
            trials[kind] = self._following.forgetting * trials[kind] + 1
            least, most = 2 ** (kind - 1), min(2**kind, LONGEST + 1)
            self._table[least:most] = [None] * (most - least)

    def _value(self, length: int) -> float:
        known = (length + 0.5) / (length + 1.5) if self._usual is None else self._usual.at(length)
        guess, kind = known, length.bit_length()
        first = self._following.first
        share = (first * guess + self._hits[kind]) / (first + self._trials[kind])
        return min(share, CERTAIN)


class MatchConfidences:
    """A drafter's confidence by kind of task; a kind starts from what held over all of them.

    Where a text is to be copied the first matching word decides, elsewhere it is mostly chance.
    """

    def __init__(self, following: Following | None = None) -> None:
        """Know the guess alone."""
        self._following = following or Following()
        self._overall = MatchConfidence(None, self._following)
        self._tasks: dict[str, MatchConfidence] = {}

    def start(self, task: str, prior: Prior | None) -> MatchConfidence:
        """The confidence of a new request; what it learns, its kind and all of them learn."""
        kind = self._tasks.setdefault(task, MatchConfidence(self._overall, self._following))
        kind.remember(prior)
        kind.renew()
        return MatchConfidence(kind, self._following)
