"""Sets of characters as rules: as their UTF-8 bytes, or as JSON writes them inside a string."""

import json
from collections.abc import Iterable, Iterator
from string import hexdigits

from engine.grammar.rules import Bytes, Choice, Row, Rule, Text

Ranges = tuple[tuple[int, int], ...]
"""Code points from and to, both included; in order and apart from each other."""

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)  # halves of characters, which no text has
_ENDS = (0x7F, 0x7FF, 0xFFFF)  # the last code points of one byte, of two and of three
_CONTROLS, _QUOTE, _BACKSLASH = (0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C)
_ESCAPED = (_CONTROLS, _QUOTE, _BACKSLASH)


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in any order, which may overlap, as one set."""
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
    """What hexadecimal digits say; None where that is no character."""
    if not digits or not set(digits) <= set(hexdigits):
        return None
    code, (low, high) = int(digits, 16), _SURROGATES
    return code if code <= LAST and not low <= code <= high else None


def plain(ranges: Ranges) -> Rule:
    """One character of these, as UTF-8; of no ranges a choice of nothing."""
    paths = [path for low, high in _without(ranges, (_SURROGATES,)) for path in _paths(low, high)]
    short = tuple(path[0] for path in paths if len(path) == 1)
    long = [Row(tuple(Bytes((step,)) for step in path)) for path in paths if len(path) > 1]
    options: list[Rule] = [*([Bytes(short)] if short else []), *long]
    return options[0] if len(options) == 1 else Choice(tuple(options))


def quoted(ranges: Ranges) -> Rule:
    """One character of these inside a string of JSON: a few are written with a backslash."""
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
    """Ranges of bytes, one after the other, that together are the UTF-8 of all these code points."""
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
