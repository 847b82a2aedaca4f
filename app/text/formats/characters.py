"""Reading texts by character, and sets of characters and free text as grammar rules."""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from string import hexdigits
from typing import NoReturn

from engine.grammar.rules import Bytes, Choice, Named, Row, Rule, Text

Ranges = tuple[tuple[int, int], ...]
"""Inclusive ranges of code points, sorted and disjoint."""

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)  # no valid text has them
_ENDS = (0x7F, 0x7FF, 0xFFFF)  # the last code points of one byte, of two and of three
_CONTROLS, _QUOTE, _BACKSLASH = (0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C)
_ESCAPED = (_CONTROLS, _QUOTE, _BACKSLASH)


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Normalise ranges that may overlap."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def others(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """All characters that are not in these ranges."""
    found, at = [], 0
    for low, high in joined((*ranges, _SURROGATES)):
        if at < low:
            found.append((at, low - 1))
        at = high + 1
    return (*found, (at, LAST)) if at <= LAST else tuple(found)


def code_point(digits: str) -> int | None:
    """The code point of hexadecimal digits; None if it is not a character."""
    if not digits or not set(digits) <= set(hexdigits):
        return None
    code, (low, high) = int(digits, 16), _SURROGATES
    return code if code <= LAST and not low <= code <= high else None


def plain(ranges: Ranges) -> Rule:
    """One character of these, as UTF-8; an empty choice if there are no ranges."""
    paths = [path for low, high in _without(ranges, (_SURROGATES,)) for path in _paths(low, high)]
    short = tuple(path[0] for path in paths if len(path) == 1)
    long = [Row(tuple(Bytes((step,)) for step in path)) for path in paths if len(path) > 1]
    options: list[Rule] = [*([Bytes(short)] if short else []), *long]
    return options[0] if len(options) == 1 else Choice(tuple(options))


def quoted(ranges: Ranges) -> Rule:
    """One character of these inside a JSON string, escaped where JSON requires it."""
    bare = plain(_without(ranges, _ESCAPED))
    escaped = [
        Text(json.dumps(chr(code))[1:-1].encode())
        for first, last in _ESCAPED
        for low, high in ranges
        for code in range(max(low, first), min(high, last) + 1)
    ]
    if not escaped:
        return bare
    bares = () if bare == Choice(()) else (bare,)
    return Choice((*bares, *escaped))


def _without(ranges: Ranges, left_out: Iterable[tuple[int, int]]) -> Ranges:
    return others((*others(ranges), *left_out))


def _paths(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Sequences of byte ranges whose UTF-8 covers all these code points."""
    for end in _ENDS:
        if low <= end < high:
            yield from _paths(low, end)
            yield from _paths(end + 1, high)
            return
    for bits in (6, 12, 18):
        tail = (1 << bits) - 1 if high > _ENDS[0] else 0
        if low & ~tail == high & ~tail:
            break
        if low & tail:
            yield from _paths(low, low | tail)
            yield from _paths((low | tail) + 1, high)
            return
        if high & tail != tail:
            yield from _paths(low, (high & ~tail) - 1)
            yield from _paths(high & ~tail, high)
            return
    yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))


def up_to(
    marker: bytes, after: Rule, name: str, *, may_end: bool = False
) -> list[tuple[str, Rule]]:
    """Any text up to the first ``marker``, then ``after``: the automaton of Knuth, Morris and Pratt.

    Rule ``NAME i`` applies after the first i bytes of the marker; ``NAME 0`` is the start. With
    ``may_end`` the text may also end anywhere, without the marker.
    """
    rules: list[tuple[str, Rule]] = []
    for known in range(len(marker)):
        next_states: defaultdict[int, list[int]] = defaultdict(list)
        for byte in range(256):
            next_states[_overlap(marker, marker[:known] + bytes([byte]))].append(byte)
        ways = (
            Row((Bytes(tuple((b, b) for b in values)), after if count == len(marker) else Named(f"{name} {count}")))
            for count, values in next_states.items()
        )  # fmt: skip
        rules.append((f"{name} {known}", Choice((*((Text(b""),) if may_end else ()), *ways))))
    return rules


def _overlap(marker: bytes, text: bytes) -> int:
    """How many bytes at the end of ``text`` are a prefix of the marker."""
    return next(count for count in range(len(text), -1, -1) if text.endswith(marker[:count]))


_TOO_SHORT = "it ends too early"


class Scanner(ABC):
    """Reads a text from left to right; ``at`` is the next character."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @abstractmethod
    def fail(self, why: str) -> NoReturn:
        """Raise InvalidRequest with the reason."""

    @property
    def over(self) -> bool:
        """Whether the text is read."""
        return self.at == len(self.text)

    def ahead(self, count: int = 1) -> str:
        """The next characters, fewer at the end."""
        return self.text[self.at : self.at + count]

    def take(self, sign: str) -> bool:
        """Skip ``sign`` if it is next; returns whether it was."""
        found = self.text.startswith(sign, self.at)
        self.at += len(sign) if found else 0
        return found

    def next(self) -> str:
        """The next character."""
        if self.over:
            self.fail(_TOO_SHORT)
        self.at += 1
        return self.text[self.at - 1]

    def until(self, sign: str) -> str:
        """The text up to ``sign``, which is skipped."""
        end = self.text.find(sign, self.at)
        if end < 0:
            self.fail(_TOO_SHORT)
        inside, self.at = self.text[self.at : end], end + len(sign)
        return inside
