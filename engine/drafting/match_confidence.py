"""How likely is the token that followed an earlier occurrence of the newest words?"""

from collections.abc import Sequence

from engine.drafting.tuning import TUNING
from engine.request import Prior
from engine.statistics.decayed import Decayed
from engine.statistics.tuning import TUNING as STATISTICS


class MatchConfidence:
    """How often the token after a match of this length was the next one; measured by powers of two.

    The guess (l + 1/2) / (l + 3/2) was measured over chats, sums and edits alike. The product along a
    path, where each accepted token makes the match longer, replaces the draft length alpha * l of
    SuffixDecoding (arXiv 2411.04975): short matches give short drafts, a copied text gives long ones.
    """

    def __init__(self, usual: "MatchConfidence | None" = None) -> None:
        """Start from the guess, or from what is ``usual``."""
        self._usual = usual
        self._kinds = TUNING.longest_match.bit_length() + 1  # of matches
        self._counts = [Decayed() for _ in range(self._kinds)]
        self._table: list[float | None] = []  # by length; None: not asked since it changed
        self.renew()

    def at(self, length: int) -> float:
        """Probability of the next token after a match of ``length`` >= 1."""
        length = min(length, TUNING.longest_match)
        known = self._table[length]
        if known is None:
            known = self._table[length] = self._value(length)
        return known

    def survival(self, length: int, most: int) -> list[float]:
        """Probability that the first 1..most tokens after the match are all right; it falls."""
        sure, found = 1.0, []
        for depth in range(most):
            sure *= self.at(length + depth)
            found.append(sure)
        return found

    def renew(self) -> None:
        """Take in what is ``usual`` now."""
        self._table = [None] * (TUNING.longest_match + 1)

    def remember(self, prior: Prior | None) -> None:
        """Start from ``shares`` of earlier sessions, unless something was measured."""
        if prior is None or len(prior.shares) != 2 * self._kinds:
            return
        if any(counts.trials for counts in self._counts):
            return
        weight = min(prior.share_weight, STATISTICS.prior_weight)
        pairs = zip(prior.shares[: self._kinds], prior.shares[self._kinds :], strict=True)
        self._counts = [Decayed(weight * hit, weight * hit + weight * miss) for hit, miss in pairs]
        self.renew()

    def shares(self) -> tuple[tuple[float, ...], float]:
        """Of the evaluated tokens: the shares that were right, by kind of match, then wrong ones.

        [2 * kinds] shares that sum to 1, or none; and the number of tokens.
        """
        total = sum(counts.trials for counts in self._counts)
        if total == 0:
            return (), 0.0
        hits = [counts.hits / total for counts in self._counts]
        misses = [(counts.trials - counts.hits) / total for counts in self._counts]
        return (*hits, *misses), total

    def learn(self, length: int, expected: Sequence[int], emitted: Sequence[int]) -> None:
        """What followed a match of ``length``, compared with what the target then emitted."""
        noted = []
        for depth, (token, other) in enumerate(zip(expected, emitted, strict=False)):
            kind = min(length + depth, TUNING.longest_match).bit_length()
            noted.append((kind, token == other))
            if token != other:
                break
        self.note(noted)

    def note(self, noted: Sequence[tuple[int, bool]]) -> None:
        """Tokens by kind of match, and whether they were right; what is usual learns them too."""
        if self._usual is not None:
            self._usual.note(noted)
        longest = TUNING.longest_match
        for kind, hit in noted:
            self._counts[kind].add(hit, memory=TUNING.match_memory)
            least, most = 2 ** (kind - 1), min(2**kind, longest + 1)
            self._table[least:most] = [None] * (most - least)

    def _value(self, length: int) -> float:
        guess = (length + 0.5) / (length + 1.5) if self._usual is None else self._usual.at(length)
        counts = self._counts[length.bit_length()]
        share = counts.share(guess, TUNING.match_guess_weight)
        return min(share, TUNING.max_confidence)


class MatchConfidences:
    """A drafter's confidence by kind of task; a task starts from what was measured over all of them.

    Where a text is to be copied the first matching word decides; elsewhere it is mostly chance.
    """

    def __init__(self) -> None:
        """Only the guess is known."""
        self._overall = MatchConfidence()
        self._tasks: dict[str, MatchConfidence] = {}

    def start(self, task: str, prior: Prior | None) -> MatchConfidence:
        """The confidence of a new request; its task and all tasks learn what it learns."""
        if task not in self._tasks:
            self._tasks[task] = MatchConfidence(self._overall)
        usual = self._tasks[task]
        usual.remember(prior)
        usual.renew()
        return MatchConfidence(usual)
