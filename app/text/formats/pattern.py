"""Regular expressions of JSON Schema (ECMA-262) in the notation that llguidance reads.

A pattern may match anywhere in a text; what is made of it matches the whole text. Look-ahead is
taken at the start of a pattern alone, and of what must not follow only a set of characters up to the
end; lookbehind and back-references are refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from string import hexdigits
from typing import NoReturn

from engine.errors import InvalidRequest

DEEPEST = 32  # nested groups
MOST_REPEATS = 100_000
MOST_WAYS = 64  # that differ in what ties them to the start or the end
ANY = "(?s:.)"
_LINE = r"[^\n\r\u{2028}\u{2029}]"
_SPACES = r"\t-\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}"
_SETS = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACES}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_HEX_DIGITS = {"x": 2, "u": 4}
_COUNT = re.compile(r"[*+?]|\{([0-9]{1,9})(,([0-9]{0,9}))?\}")
_GROUP = re.compile(r"\((\?:|\?=|\?P?<\w+>|(?!\?))")
_LAST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class _Way:
    """One alternative, and whether it is tied to the start and to the end of the text."""

    body: str = ""
    start: bool = False
    end: bool = False

    @property
    def whole(self) -> str:
        """An expression of whole texts."""
        return f"{'' if self.start else ANY + '*'}(?:{self.body}){'' if self.end else ANY + '*'}"

    @property
    def tied(self) -> bool:
        return self.start or self.end


def whole_patterns(pattern: str) -> list[str]:
    """Expressions of whole texts, of which a text must match every one; raises InvalidRequest."""
    return _Reader(pattern).whole()


def character(code: int) -> str:
    """One character, whatever it means elsewhere."""
    one = chr(code)
    return one if one.isascii() and one.isalnum() else f"\\u{{{code:x}}}"


class _Reader:
    """Reads a pattern from left to right; ``at`` is the next character."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self._asked_ahead: list[str] = []  # by look-ahead at the start

    def whole(self) -> list[str]:
        ways = self._ways(0)
        if self.at < len(self.text):
            self._refuse(self.text[self.at])
        if self._asked_ahead and len(ways) > 1:
            self._refuse("(?=")
        return [*self._asked_ahead, "|".join(way.whole for way in ways)]

    def _ways(self, depth: int) -> list[_Way]:
        """The alternatives; one alone where none of them is tied."""
        if depth > DEEPEST:
            raise InvalidRequest(f"the pattern has more than {DEEPEST} nested groups")
        found = self._row(depth)
        while self._take("|"):
            found += self._row(depth)
        if len(found) > MOST_WAYS:
            raise InvalidRequest(f"the pattern has more than {MOST_WAYS} tied alternatives")
        if any(way.tied for way in found):
            return found
        return [_Way("|".join(way.body for way in found))]

    def _row(self, depth: int) -> list[_Way]:
        rows = [_Way()]
        while self._ahead() not in ("", "|", ")"):
            ahead = self.text[self.at : self.at + 3]
            if ahead in _AHEAD:
                if depth or rows != [_Way(start=True)]:
                    self._refuse(ahead)
                _AHEAD[ahead](self)
                continue
            parts = self._part(depth)
            rows = [self._joined(row, part) for row in rows for part in parts]
        return rows

    def _joined(self, row: _Way, part: _Way) -> _Way:
        if part.start and row.body:
            self._refuse("^")
        if row.end and part.body:
            self._refuse("$")
        return _Way(row.body + part.body, row.start or part.start, row.end or part.end)

    def look_ahead(self) -> None:
        self.at += len("(?=")
        asked = self._group_end(1)
        self._asked_ahead.append("|".join(_Way(w.body, True, w.end).whole for w in asked))  # noqa: FBT003

    def look_for_others(self) -> None:
        """That not all of the text is of one set of characters: (?!^[-+.]*$), (?!\\s*$)."""
        self.at += len("(?!")
        self._take("^")
        sign = self._ahead()
        few = self._atom(sign) if sign not in ("", "(", ")", "|", "$") else ""
        count = self._next() if few and self._ahead() in ("*", "+") else ""
        if not count or not (self._take("$") and self._take(")")):
            self._refuse("(?!")
        other = f"{ANY}*[^{few}]{ANY}*"
        self._asked_ahead.append(other if count == "*" else f"(?:{other})?")

    def _part(self, depth: int) -> list[_Way]:
        """One element with its quantifier; several ways where it is a group with ties."""
        sign = self._ahead()
        if sign in "^$":
            self.at += 1
            found = [_Way(start=sign == "^", end=sign == "$")]
        elif sign == "(":
            found = self._group(depth + 1)
        else:
            found = [_Way(self._atom(sign))]
        tied = any(way.tied for way in found)
        here = self._count()
        if here and tied:
            self._refuse(here)
        if tied:
            return found
        body = found[0].body
        return [_Way(f"(?:{body}){here}" if sign == "(" else f"{body}{here}")]

    def _group(self, depth: int) -> list[_Way]:
        opening = _GROUP.match(self.text, self.at)
        if opening is None:
            rest = self.text[self.at :]
            named = rest.startswith(("(?<", "(?P<"))
            self._refuse(rest[: 4 if named else 3])
        self.at = opening.end()
        return self._group_end(depth)

    def _group_end(self, depth: int) -> list[_Way]:
        found = self._ways(depth)
        if not self._take(")"):
            self._refuse("(")
        return found

    def _atom(self, sign: str) -> str:
        if _COUNT.match(self.text, self.at):
            self._refuse(sign)
        self.at += 1
        if sign == "[":
            return self._class()
        if sign == ".":
            return _LINE
        if sign != "\\":
            return character(ord(sign))
        found = self._escape()
        return found if isinstance(found, str) else character(found)

    def _count(self) -> str:
        """A quantifier; empty if there is none, and then a brace is a character."""
        found = _COUNT.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        self._take("?")  # lazy or greedy makes no difference to the set of texts
        if _COUNT.match(self.text, self.at):
            raise InvalidRequest("the pattern has two quantifiers in a row")
        if found[1]:
            least = int(found[1])
            largest = int(found[3]) if found[3] else least
            if not least <= largest <= MOST_REPEATS:
                raise InvalidRequest(
                    f"the pattern repeats {least} to {largest} times; choose 0 to {MOST_REPEATS}, "
                    "the smaller first"
                )
        return found[0]

    def _class(self) -> str:
        """A set between brackets."""
        negated, found = self._take("^"), ""
        while not self._take("]"):
            low = self._member()
            if self._ahead() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                before = self.at
                self.at += 1
                high = self._member()
                if isinstance(low, int) and isinstance(high, int):
                    if low > high:
                        self.at = before
                        self._refuse("-")
                    found += f"{character(low)}-{character(high)}"
                    continue
                found += f"{_listed(low)}{character(ord('-'))}{_listed(high)}"
                continue
            found += _listed(low)
        if not found and not negated:
            raise InvalidRequest("the pattern has an empty character class")
        return f"[{'^' if negated else ''}{found}]" if found else ANY

    def _member(self) -> int | str:
        sign = self._next()
        if sign != "\\":
            return ord(sign)
        return 8 if self._take("b") else self._escape()

    def _escape(self) -> int | str:
        """The character or the set, in brackets, after a backslash."""
        letter = self._next()
        if letter.lower() in _SETS and letter.isascii():
            return f"[{'^' if letter.isupper() else ''}{_SETS[letter.lower()]}]"
        if letter in _CONTROLS and not (letter == "0" and self._ahead().isdigit()):
            return _CONTROLS[letter]
        if letter in _HEX_DIGITS:
            return self._code(letter)
        if letter.isascii() and letter.isalnum():
            self._refuse(f"\\{letter}")
        return ord(letter)

    def _code(self, letter: str) -> int:
        if letter == "u" and self._take("{"):
            digits, closed, _ = self.text[self.at :].partition("}")
            self.at += len(digits) + len(closed)
        else:
            digits = "".join(self._next() for _ in range(_HEX_DIGITS[letter]))
        code = int(digits, 16) if digits and set(digits) <= set(hexdigits) else _LAST + 1
        low = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})").match(self.text, self.at)
        if 0xD800 <= code <= 0xDBFF and low:  # two halves of one character
            self.at = low.end()
            return 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00
        if code > _LAST or 0xD800 <= code <= 0xDFFF:
            self._refuse(f"\\{letter}{digits}")
        return code

    def _ahead(self) -> str:
        return self.text[self.at : self.at + 1]

    def _next(self) -> str:
        if self.at == len(self.text):
            raise InvalidRequest("the pattern cannot be read: it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def _take(self, sign: str) -> bool:
        found = self.text.startswith(sign, self.at)
        self.at += len(sign) if found else 0
        return found

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidRequest(
            f"{what!r} in the pattern, before character {self.at + 1}, is not supported"
        )


def _listed(member: int | str) -> str:
    """A member of a set as it is written between brackets."""
    return member if isinstance(member, str) else character(member)


_AHEAD: dict[str, Callable[[_Reader], None]] = {
    "(?=": _Reader.look_ahead, "(?!": _Reader.look_for_others,
}  # fmt: skip
