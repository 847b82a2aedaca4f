"""GBNF, llama.cpp's grammar notation, read into rules; ``lexemes.py`` writes them for llguidance."""

import re
from collections.abc import Mapping
from string import hexdigits
from typing import NoReturn

from app.text.formats.check import checker
from app.text.formats.lexemes import (
    Chars,
    Choice,
    Named,
    Repeat,
    Row,
    Rule,
    Token,
    parts_of,
    written,
)
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar
from engine.grammar.vocabulary import MOST_TOKENS

LARGEST, DEEPEST = 1 << 18, 64  # bytes of a grammar; nested groups
MOST_REPEATS, MOST_COUNTED = 10_000, 100_000  # of one quantifier, and of nested ones
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_DIGITS = {"x": 2, "u": 4, "U": 8}
_LAST = 0x10FFFF
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_TOKEN = re.compile(r"(!?)<\[([0-9]{1,9})\]>")
_LOW_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def gbnf_grammar(text: str) -> Grammar:
    """The grammar with its rule ``root``; raises InvalidRequest."""
    size = len(text.encode(errors="replace"))
    if size > LARGEST:
        raise InvalidRequest(f"the grammar has {size} bytes; at most {LARGEST} are allowed")
    rules = _Reader(text).rules()
    try:
        _check(rules)
        source = written(rules)
    except RecursionError as error:
        raise InvalidRequest(
            "the grammar has rules within rules, hundreds of levels deep; write it with fewer levels"
        ) from error
    if trouble := checker().trouble_with(source):
        raise InvalidRequest(f"the grammar cannot be held: {trouble}")
    return Grammar(source)


def _check(rules: Mapping[str, Rule]) -> None:
    """Raise InvalidRequest for a grammar that no answer can satisfy, or that counts too far."""
    if "root" not in rules:
        raise InvalidRequest("the grammar has no rule 'root'")
    for rule in rules.values():
        for part in parts_of(rule):
            if isinstance(part, Named) and part.name not in rules:
                raise InvalidRequest(f"the grammar has no rule {part.name!r}")
        if (counted := _counted(rule)) > MOST_COUNTED:
            raise InvalidRequest(
                f"the grammar has nested repetitions, {counted} times in all; at most "
                f"{MOST_COUNTED} are supported"
            )
    ending: set[str] = set()
    while more := {n for n, rule in rules.items() if n not in ending and _ends(rule, ending)}:
        ending |= more
    if lost := [name for name in rules if name not in ending]:
        raise InvalidRequest(
            f"the grammar's rule {lost[0]!r} never ends; give it an alternative without recursion"
        )


def _counted(rule: Rule) -> int:
    """The number of positions in nested repetitions."""
    match rule:
        case Row(inner) | Choice(inner):
            return max(map(_counted, inner), default=1)
        case Repeat(inner, least, most):
            return max(1, least if most is None else most) * _counted(inner)
        case _:
            return 1


def _ends(rule: Rule, ending: set[str]) -> bool:
    """Whether the rule has a text, of rules alone that have one."""
    match rule:
        case Row(parts):
            return all(_ends(part, ending) for part in parts)
        case Choice(options):
            return any(_ends(option, ending) for option in options)
        case Repeat(inner, least, _):
            return least == 0 or _ends(inner, ending)
        case Named(name):
            return name in ending
        case _:
            return True


class _Reader:
    """Reads the rules from the first to the last; ``at`` is the next character."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def rules(self) -> dict[str, Rule]:
        found: dict[str, Rule] = {}
        self._space(lines=True)
        while self.at < len(self.text):
            name = self._name()
            self._space()
            if not self._take("::="):
                self._fail("'::=' is missing")
            self._space(lines=True)
            if name in found:
                self._fail(f"there are two rules {name!r}")
            found[name] = self._ways(0)
            if self._ahead() not in ("", "\r", "\n"):
                self._fail("a new line is missing")
            self._space(lines=True)
        return found

    def _ways(self, depth: int) -> Rule:
        if depth > DEEPEST:
            self._fail(f"more than {DEEPEST} nested groups")
        ways = [self._way(depth)]
        while self._take("|"):
            self._space(lines=True)
            ways.append(self._way(depth))
        return ways[0] if len(ways) == 1 else Choice(tuple(ways))

    def _way(self, depth: int) -> Rule:
        parts: list[Rule] = []
        while (part := self._one(depth)) is not None:
            self._space(lines=depth > 0)
            counts = self._counts()
            if counts is not None:
                self._space(lines=depth > 0)
                if self._counts() is not None:
                    self._fail("two quantifiers in a row")
            parts.append(part if counts is None else _repeated(part, *counts))
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _one(self, depth: int) -> Rule | None:
        """One element; None if there is none here."""
        if self._take('"'):
            return self._literal()
        if self._take("["):
            return self._class()
        if self._take("."):
            return Chars(((0, _LAST),))
        if self._take("("):
            self._space(lines=True)
            inside = self._ways(depth + 1)
            if not self._take(")"):
                self._fail("')' is missing")
            return inside
        if self._ahead() in ("<", "!"):
            return self._token()
        return Named(self._name()) if _NAME.match(self.text, self.at) else None

    def _token(self) -> Rule:
        token = _TOKEN.match(self.text, self.at)
        if token is None:
            self._fail("tokens are not supported by their names; write <[NUMBER]> or characters")
        self.at = token.end()
        if int(token[2]) >= MOST_TOKENS:
            self._fail(f"no model has a token {token[2]}")
        return Token(f"<[{'^' if token[1] else ''}{token[2]}]>")

    def _literal(self) -> Rule:
        found: list[Rule] = []
        while not self._take('"'):
            code = self._character()
            found.append(Chars(((code, code),)))
        return found[0] if len(found) == 1 else Row(tuple(found))

    def _class(self) -> Rule:
        negated = self._take("^")
        found: list[tuple[int, int]] = []
        while not self._take("]"):
            low = high = self._character()
            if self._ahead() == "-" and not self.text.startswith("-]", self.at):
                self.at += 1
                high = self._character()
            if high < low:
                self._fail("a range of characters ends before it begins")
            found.append((low, high))
        if not found and not negated:
            self._fail("a choice has no characters")
        return Chars(_others(found) if negated else tuple(found))

    def _character(self) -> int:
        letter = self._next()
        if letter != "\\":
            return ord(letter)
        letter = self._next()
        if letter not in _DIGITS:
            return ord(_LETTERS.get(letter, letter))
        digits = "".join(self._next() for _ in range(_DIGITS[letter]))
        code = int(digits, 16) if set(digits) <= set(hexdigits) else _LAST + 1
        low = _LOW_HALF.match(self.text, self.at)
        if 0xD800 <= code <= 0xDBFF and low:  # two halves of one character
            self.at = low.end()
            return 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00
        if code > _LAST or 0xD800 <= code <= 0xDFFF:
            self._fail(f"\\{letter}{digits} is no character")
        return code

    def _counts(self) -> tuple[int, int | None] | None:
        for sign, counts in _COUNTS.items():
            if self._take(sign):
                return counts
        if not self._take("{"):
            return None
        inside, closed, _ = self.text[self.at :].partition("}")
        low, comma, high = (part.strip() for part in inside.partition(","))
        least, most = _number(low), _number(high) if high else None
        self.at += len(inside) + 1
        if not closed or least is None or (high and most is None):
            self._fail("a quantifier in braces must be {2} or {2,} or {2,5}")
        largest = least if most is None else most
        if not least <= largest <= MOST_REPEATS:
            self._fail(
                f"it repeats {least} to {largest} times; choose 0 to {MOST_REPEATS}, the smaller first"
            )
        return least, most if comma else least

    def _name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if found is None:
            self._fail("a rule's name is missing")
        self.at = found.end()
        return found[0]

    def _space(self, *, lines: bool = False) -> None:
        """Skip space and comments, and new lines if ``lines``."""
        space = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*" if lines else r"(?:[ \t]|#[^\n]*)*")
        found = space.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _ahead(self) -> str:
        return self.text[self.at : self.at + 1]

    def _next(self) -> str:
        if self.at >= len(self.text):
            self._fail("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def _take(self, sign: str) -> bool:
        found = self.text.startswith(sign, self.at)
        self.at += len(sign) if found else 0
        return found

    def _fail(self, why: str) -> NoReturn:
        line = self.text.count("\n", 0, self.at) + 1
        raise InvalidRequest(f"the grammar has an error in line {line}: {why}")


def _repeated(part: Rule, least: int, most: int | None) -> Rule:
    """A repetition; one of a repetition that may occur once or not at all is the same as one alone."""
    if isinstance(part, Repeat) and part.least <= 1:
        upper = None if most is None or part.most is None else most * part.most
        if most != 0 and (part.least == 0 or part.most is None or part.most >= 1):
            return Repeat(part.part, least * part.least, upper)
    return Repeat(part, least, most)


def _others(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """All characters that are not in these ranges."""
    found, at = [], 0
    for low, high in sorted((*ranges, (0xD800, 0xDFFF))):
        if at < low:
            found.append((at, low - 1))
        at = max(at, high + 1)
    return (*found, (at, _LAST)) if at <= _LAST else tuple(found)


def _number(digits: str) -> int | None:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else None
