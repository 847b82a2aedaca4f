"""Regular expressions (ECMA-262, as in JSON Schema) to grammar rules.

Look-ahead, look-after and back-references are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from typing_extensions import override

from app.text.formats.characters import LAST, Ranges, Scanner, code_point, joined, others
from engine.errors import InvalidRequest
from engine.grammar.rules import MOST_REPEATS, Choice, Repeat, Row, Rule

DEEPEST = 32  # nested groups

Characters = Callable[[Ranges], Rule]
"""How one character of a set is written."""

_DIGITS: Ranges = ((0x30, 0x39),)
_WORDS: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACES: Ranges = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_SETS = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_SETS |= {name.upper(): others(known) for name, known in _SETS.items()}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_HEX_DIGITS = {"x": 2, "u": 4}
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class _Elastic:
    """A repeated character between parts of fixed length."""

    each: Rule
    least: int
    most: int | None
    before: tuple[Rule, ...] = ()
    after: tuple[Rule, ...] = ()
    fixed: int = 0  # characters around it

    def within(self, least: int, most: int | None) -> Rule | None:
        """The rule with ``least`` to ``most`` characters in all; None if there is no such text."""
        upper = [
            many
            for many in (self.most, None if most is None else most - self.fixed)
            if many is not None
        ]
        low, high = max(self.least, least - self.fixed), min(upper, default=None)
        if high is not None and low > high:
            return None
        return Row((*self.before, Repeat(self.each, low, high), *self.after))


@dataclass(frozen=True, slots=True)
class Piece:
    """What a part of an expression matches, and how many characters that has."""

    rule: Rule
    least: int
    most: int | None  # None: no end
    elastic: _Elastic | None = None

    def within(self, least: int, most: int | None) -> Rule | None:
        """The rule with ``least`` to ``most`` characters; None if it cannot be expressed."""
        shorter = most is not None and (self.most is None or self.most > most)
        if self.least >= least and not shorter:
            return self.rule
        return None if self.elastic is None else self.elastic.within(least, most)


def matching(expression: str, write: Characters) -> Piece:
    """Texts in which the expression matches somewhere; raises InvalidRequest.

    Without ^ or $ any text may come before or after.
    """
    return _Reader(expression, write).whole()


class _Reader(Scanner):
    """Reads one expression."""

    def __init__(self, expression: str, write: Characters) -> None:
        super().__init__(expression)
        self._write = write
        self._anything = Piece(Repeat(write(((0, LAST),))), 0, None)
        self._nothing = Piece(Row(()), 0, 0)

    def whole(self) -> Piece:
        """Each alternative has its own anchors."""
        ways = [self._tied_way()]
        while self.take("|"):
            ways.append(self._tied_way())
        if not self.over:
            self._refuse(self.ahead())
        return _either(ways)

    def _tied_way(self) -> Piece:
        begins = self.take("^")
        way = self._way(0)
        before = self._nothing if begins else self._anything
        after = self._nothing if self.take("$") else self._anything
        return _sequence([before, way, after])

    def _ways(self, depth: int) -> Piece:
        ways = [self._way(depth)]
        while self.take("|"):
            ways.append(self._way(depth))
        return _either(ways)

    def _way(self, depth: int) -> Piece:
        parts = []
        while not self.over and self.ahead() not in "|)$":
            parts.append(self._repeated(self._one(depth)))
        return _sequence(parts)

    def _one(self, depth: int) -> Piece:
        if self.take("("):
            return self._group(depth + 1)
        if self.take("["):
            return self._character(self._class())
        if self.take("."):
            return self._character(others(_LINE_ENDS))
        if self.take("\\"):
            return self._character(self._escape())
        if self.ahead() in "^*+?":
            self._refuse(self.ahead())
        return self._character(_only(ord(self.next())))

    def _group(self, depth: int) -> Piece:
        if depth > DEEPEST:
            raise InvalidRequest(f"the pattern has more than {DEEPEST} nested groups")
        start = self.at
        if self.take("?") and not self.take(":"):
            named = self.take("P<") or self.take("<")
            if not named or self.ahead() in ("=", "!"):
                self._refuse(f"({self.text[start : self.at + 1]}")
            self.until(">")
        inside = self._ways(depth)
        if not self.take(")"):
            self._refuse("(" if self.over else self.ahead())
        return inside

    def _repeated(self, piece: Piece) -> Piece:
        counts = self._counts()
        if counts is None:
            return piece
        self.take("?")  # lazy or greedy makes no difference to the set of texts
        if self._counts() is not None:
            raise InvalidRequest("the pattern has two quantifiers in a row")
        least, most = counts
        largest = least if most is None else most
        if not least <= largest <= MOST_REPEATS:
            raise InvalidRequest(
                f"the pattern repeats {least} to {largest} times; choose 0 to {MOST_REPEATS}, the "
                "smaller first"
            )
        endless = most is None or piece.most is None
        upper = None if endless else (most or 0) * (piece.most or 0)
        single = piece.least == piece.most == 1
        elastic = _Elastic(piece.rule, least, most) if single else None
        return Piece(Repeat(piece.rule, least, most), least * piece.least, upper, elastic)

    def _counts(self) -> tuple[int, int | None] | None:
        """A quantifier; None if there is none, and then a brace is a character."""
        for sign, counts in _COUNTS.items():
            if self.take(sign):
                return counts
        inside, closed, _ = self.text[self.at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        numbers = _is_number(low) and (not high or _is_number(high))
        if not (self.text.startswith("{", self.at) and closed and numbers):
            return None
        self.at += len(inside) + 2
        return int(low), (int(high) if high else None) if comma else int(low)

    def _class(self) -> Ranges:
        """A set between brackets."""
        negated = self.take("^")
        found: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self._member()
            if self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                high = self._member()
                if not len(low) == len(high) == 1 or low[0][0] > high[0][1]:
                    self._refuse("-")
                found.append((low[0][0], high[0][1]))
            else:
                found += low
        return others(found) if negated else joined(found)

    def _member(self) -> Ranges:
        if self.take("\\"):
            return _only(0x08) if self.take("b") else self._escape()
        return _only(ord(self.next()))

    def _escape(self) -> Ranges:
        letter = self.next()
        if letter in _SETS:
            return _SETS[letter]
        if letter in _CONTROLS and not (letter == "0" and self.ahead().isdigit()):
            return _only(_CONTROLS[letter])
        if letter in _HEX_DIGITS:
            return _only(self._code(letter))
        if letter.isascii() and letter.isalnum():
            self._refuse(f"\\{letter}")
        return _only(ord(letter))

    def _code(self, letter: str) -> int:
        if letter == "u" and self.take("{"):
            digits = self.until("}")
        else:
            digits = "".join(self.next() for _ in range(_HEX_DIGITS[letter]))
        code = code_point(digits)
        if code is None:
            self._refuse(f"\\{letter}{digits}")
        return code

    def _character(self, ranges: Ranges) -> Piece:
        rule = self._write(ranges)
        if rule == Choice(()):
            raise InvalidRequest("the pattern has an empty character class")
        return Piece(rule, 1, 1)

    @override
    def fail(self, why: str) -> NoReturn:
        raise InvalidRequest(f"the pattern cannot be read: {why}")

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidRequest(
            f"{what!r} in the pattern, before character {self.at + 1}, is not supported"
        )


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= 9


def _only(code: int) -> Ranges:
    return ((code, code),)


def _either(ways: list[Piece]) -> Piece:
    if len(ways) == 1:
        return ways[0]
    upper = [way.most for way in ways]
    most = None if None in upper else max(many for many in upper if many is not None)
    return Piece(Choice(tuple(way.rule for way in ways)), min(way.least for way in ways), most)


def _sequence(parts: list[Piece]) -> Piece:
    parts = [part for part in parts if part.rule != Row(())]
    if len(parts) == 1:
        return parts[0]
    upper = [part.most for part in parts]
    most = None if None in upper else sum(many for many in upper if many is not None)
    rule, least = Row(tuple(part.rule for part in parts)), sum(part.least for part in parts)
    return Piece(rule, least, most, _elastic(parts))


def _elastic(parts: list[Piece]) -> _Elastic | None:
    """The elastic part, if all others have a fixed length."""
    loose = [at for at, part in enumerate(parts) if part.least != part.most]
    inner = parts[loose[0]].elastic if len(loose) == 1 else None
    if inner is None:
        return None
    before, after = parts[: loose[0]], parts[loose[0] + 1 :]
    return _Elastic(
        inner.each,
        inner.least,
        inner.most,
        (*(part.rule for part in before), *inner.before),
        (*inner.after, *(part.rule for part in after)),
        inner.fixed + sum(part.least for part in before + after),
    )
