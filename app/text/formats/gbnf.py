"""GBNF, llama.cpp's grammar notation, to grammar rules. Rules over tokens of one model are refused."""

from typing import NoReturn

from typing_extensions import override

from app.text.formats.characters import LAST, Ranges, Scanner, code_point, joined, others, plain
from engine.errors import InvalidRequest
from engine.grammar.rules import Choice, Grammar, Named, Repeat, Row, Rule, Text

LARGEST, DEEPEST = 1 << 16, 64  # bytes of a grammar; nested groups
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_DIGITS = {"x": 2, "u": 4, "U": 8}


def gbnf_grammar(text: str) -> Grammar:
    """The grammar with its rule ``root``; raises InvalidRequest."""
    size = len(text.encode(errors="replace"))
    if size > LARGEST:
        raise InvalidRequest(f"the grammar has {size} bytes; at most {LARGEST} are allowed")
    found = Grammar(tuple(_Reader(text).rules().items()))
    found.check()
    return found


class _Reader(Scanner):
    """Reads the rules from the first to the last."""

    def rules(self) -> dict[str, Rule]:
        found: dict[str, Rule] = {}
        self._space(lines=True)
        while not self.over:
            name = self._name()
            self._space()
            if not self.take("::="):
                self.fail("'::=' is missing")
            self._space(lines=True)
            if name in found:
                self.fail(f"there are two rules {name!r}")
            found[name] = self._ways(0)
            if self.ahead() not in ("", "\r", "\n"):
                self.fail("a new line is missing")
            self._space(lines=True)
        return found

    def _ways(self, depth: int) -> Rule:
        if depth > DEEPEST:
            self.fail(f"more than {DEEPEST} nested groups")
        ways = [self._way(depth)]
        while self.take("|"):
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
                    self.fail("two quantifiers in a row")
            parts.append(part if counts is None else Repeat(part, *counts))
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _one(self, depth: int) -> Rule | None:
        """One element; None if there is none here."""
        if self.take('"'):
            return self._literal()
        if self.take("["):
            return self._written(self._class())
        if self.take("."):
            return plain(((0, LAST),))
        if self.take("("):
            self._space(lines=True)
            inside = self._ways(depth + 1)
            if not self.take(")"):
                self.fail("')' is missing")
            return inside
        if self.ahead() in ("<", "!"):
            self.fail("tokens are not supported; write characters")
        return Named(self._name()) if self._is_word(self.at) else None

    def _literal(self) -> Rule:
        found = ""
        while not self.take('"'):
            found += self._character()
        return Text(found.encode())

    def _class(self) -> Ranges:
        negated = self.take("^")
        found: list[tuple[int, int]] = []
        while not self.take("]"):
            low = high = ord(self._character())
            ranged = self.text.startswith("-", self.at)
            if ranged and not self.text.startswith("-]", self.at):
                self.at += 1
                high = ord(self._character())
            if high < low:
                self.fail("a range of characters ends before it begins")
            found.append((low, high))
        return others(found) if negated else joined(found)

    def _written(self, ranges: Ranges) -> Rule:
        rule = plain(ranges)
        if rule == Choice(()):
            self.fail("a choice has no characters")
        return rule

    def _character(self) -> str:
        letter = self.next()
        if letter != "\\":
            return letter
        letter = self.next()
        if letter not in _DIGITS:
            return _LETTERS.get(letter, letter)
        digits = "".join(self.next() for _ in range(_DIGITS[letter]))
        code = code_point(digits)
        if code is None:
            self.fail(f"\\{letter}{digits} is no character")
        return chr(code)

    def _counts(self) -> tuple[int, int | None] | None:
        for sign, counts in _COUNTS.items():
            if self.take(sign):
                return counts
        if not self.take("{"):
            return None
        inside, closed, _ = self.text[self.at :].partition("}")
        low, comma, high = (part.strip() for part in inside.partition(","))
        least, most = _number(low), _number(high) if high else None
        self.at += len(inside) + 1
        if not closed or least is None or (high and most is None):
            self.fail("a quantifier in braces must be {2} or {2,} or {2,5}")
        return least, most if comma else least

    def _name(self) -> str:
        start = self.at
        while self._is_word(self.at):
            self.at += 1
        if start == self.at:
            self.fail("a rule's name is missing")
        return self.text[start : self.at]

    def _is_word(self, at: int) -> bool:
        letter = self.text[at : at + 1]
        return letter.isascii() and (letter.isalnum() or letter in ("-", "_"))

    def _space(self, *, lines: bool = False) -> None:
        """Skip space and comments, and new lines if ``lines``."""
        while not self.over:
            if self.ahead() == "#":
                rest = self.text[self.at :].partition("\n")[0]
                self.at += len(rest)
            elif self.ahead() in (" \t\r\n" if lines else " \t"):
                self.at += 1
            else:
                return

    @override
    def fail(self, why: str) -> NoReturn:
        line = self.text.count("\n", 0, self.at) + 1
        raise InvalidRequest(f"the grammar has an error in line {line}: {why}")


def _number(digits: str) -> int | None:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else None
