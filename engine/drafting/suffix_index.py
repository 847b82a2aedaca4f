"""Suffix index over several texts: where did the end of a text occur before, and how long is the match?"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.drafting.tuning import TUNING

_STRIDE = 1 << 32  # a place is one integer: text * _STRIDE + offset


class SuffixMatch(NamedTuple):
    """``length`` tokens before ``text[end]`` equal the end of the text that was looked up."""

    length: int
    text: Sequence[int]
    end: int


class SuffixIndex:
    """Places by the 8 tokens, the 3 and the 1 before them, the newest 4 of each.

    A token costs three dictionary entries; a look-up visits at most 4 places, those of the longer
    suffix first. So the longest match is found unless 4 newer places of its suffix hide it.
    """

    def __init__(self, capacity: int | None = None) -> None:
        """Hold at most ``capacity`` tokens; None: any number."""
        self._capacity = capacity
        self._texts: dict[int, list[int]] = {}  # oldest first
        self._places: dict[int, tuple[int, ...]] = {}  # hash of a gram -> places, newest first
        self._count = 0

    def __len__(self) -> int:
        """Tokens held."""
        return sum(len(text) for text in self._texts.values())

    @property
    def texts(self) -> list[list[int]]:
        """Token ids of every text, the oldest first."""
        return list(self._texts.values())

    def extend(self, tokens: Sequence[int]) -> None:
        """Append to the newest text."""
        if not self._texts:
            self._texts[0] = []
        number, text = next(reversed(self._texts.items()))
        for token in tokens:
            place = number * _STRIDE + len(text)
            for key in self._grams(text, len(text)):
                self._places[key] = (place, *self._places.get(key, ())[: TUNING.newest - 1])
            text.append(token)

    def add(self, tokens: Sequence[int]) -> None:
        """A new text. Those that it continues are dropped, and the oldest ones where space is short.

        A text beyond the capacity keeps its end; one that an older text begins with adds nothing.
        """
        excess = 0 if self._capacity is None else max(0, len(tokens) - self._capacity)
        kept = list(tokens[excess:])
        if any(text[: len(kept)] == kept for text in self._texts.values() if len(text) > len(kept)):
            return
        for number in [n for n, text in self._texts.items() if kept[: len(text)] == text]:
            self._drop(number)
        while self._capacity is not None and len(self) + len(kept) > self._capacity:
            self._drop(next(iter(self._texts)))
        self._count += 1
        self._texts[self._count] = []
        self.extend(kept)

    def matches(self, tail: Sequence[int]) -> list[SuffixMatch]:
        """Places where the end of ``tail`` occurred: longer suffix first, then newest first."""
        found: dict[int, SuffixMatch] = {}
        for key in self._grams(tail, len(tail)):
            for place in self._places.get(key, ()):
                if len(found) < TUNING.newest and place not in found:
                    number, end = divmod(place, _STRIDE)
                    text = self._texts[number]
                    if length := self._common(
                        text, end, tail
                    ):  # 0: another gram with the same hash
                        found[place] = SuffixMatch(length, text, end)
        return list(found.values())

    def _drop(self, number: int) -> None:
        """Forget a text and all its places."""
        text = self._texts.pop(number)
        first, beyond = number * _STRIDE, (number + 1) * _STRIDE
        for key in {key for end in range(1, len(text)) for key in self._grams(text, end)}:
            places = self._places.pop(key, ())
            if rest := tuple(p for p in places if not first <= p < beyond):
                self._places[key] = rest

    def _grams(self, text: Sequence[int], end: int) -> list[int]:
        """Hashes of the grams that end before ``text[end]``; ``_common`` finds out equal ones."""
        return [hash(tuple(text[end - n : end])) for n in TUNING.grams if n <= end]

    def _common(self, text: Sequence[int], end: int, tail: Sequence[int]) -> int:
        """Tokens before ``text[end]`` that equal the end of ``tail``."""
        limit = min(TUNING.longest_match, end, len(tail))
        length = 0
        while length < limit and text[end - 1 - length] == tail[-1 - length]:
            length += 1
        return length
