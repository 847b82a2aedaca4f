"""Suffix automaton over token ids: where did the longest suffix of this text occur before?"""

from collections.abc import Sequence

_NEWEST_STEPS = (
    64  # links walked per token to keep "newest" exact; only runs of one token need more
)


class SuffixAutomaton:
    """Online automaton (Blumer et al. 1985); a token costs amortised constant time.

    Beside the automaton it keeps the match: the longest suffix of the text that also ends earlier.
    """

    def __init__(self) -> None:
        self.text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link: list[int] = [-1]
        self._length: list[int] = [0]
        self._newest: list[int] = [0]  # end of the newest occurrence of a state's strings
        self._last = 0
        self._state = 0  # state of the match
        self._matched = 0
        self._end = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the text."""
        for token in tokens:
            self._advance(token)
            self._insert(token)
            self.text.append(token)
            self._refresh()

    def match(self) -> tuple[int, int]:
        """(length of the longest suffix seen before, end of its newest earlier occurrence)."""
        return self._matched, self._end

    def continuation(self, count: int, min_match: int) -> list[int]:
        """Up to ``count`` tokens that followed the match; a period is continued into itself."""
        length, end = self.match()
        if length < min_match:
            return []
        found = self.text[end : end + count]
        period = len(self.text) - end
        while period > 0 and len(found) < count:
            found.append(found[len(found) - period])
        return found

    def _advance(self, token: int) -> None:
        """Move the match over ``token`` in the automaton of the text before it."""
        state, matched = self._state, self._matched
        while state > 0 and token not in self._next[state]:
            state = self._link[state]
            matched = self._length[state]
        if token in self._next[state]:
            state, matched = self._next[state][token], matched + 1
        else:
            state, matched = 0, 0
        self._state, self._matched, self._end = state, matched, self._newest[state]

    def _insert(self, token: int) -> None:
        current = self._add(self._length[self._last] + 1, {}, len(self.text) + 1)
        state = self._last
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = current
            state = self._link[state]
        self._link[current] = 0 if state < 0 else self._split(state, token)
        self._last = current

    def _split(self, state: int, token: int) -> int:
        """The state that ``token`` leads to from ``state``, cloned if it holds longer strings."""
        found = self._next[state][token]
        if self._length[found] == self._length[state] + 1:
            return found
        clone = self._add(self._length[state] + 1, dict(self._next[found]), self._newest[found])
        self._link[clone] = self._link[found]
        while state >= 0 and self._next[state].get(token) == found:
            self._next[state][token] = clone
            state = self._link[state]
        self._link[found] = clone
        if self._state == found and self._matched <= self._length[clone]:
            self._state = clone
        return clone

    def _add(self, length: int, transitions: dict[int, int], newest: int) -> int:
        self._next.append(transitions)
        self._link.append(-1)
        self._length.append(length)
        self._newest.append(newest)
        return len(self._next) - 1

    def _refresh(self) -> None:
        """All suffixes of the text end here now; states of long strings first."""
        end, state = len(self.text), self._link[self._last]
        for _ in range(_NEWEST_STEPS):
            if state <= 0:
                return
            self._newest[state] = end
            state = self._link[state]
