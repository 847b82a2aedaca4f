"""Numbers between bounds, as rules over their digits."""

from app.text.formats.json_text import DIGIT, MOST_DIGITS
from engine.grammar.rules import Bytes, Choice, Repeat, Row, Rule, Text

FARTHEST = 10 ** (MOST_DIGITS + 1) - 1


def between(low: int | None, high: int | None) -> Rule:
    """Whole numbers from ``low`` to ``high``, both included; None is as far as digits go."""
    low = -FARTHEST if low is None else max(low, -FARTHEST)
    high = FARTHEST if high is None else min(high, FARTHEST)
    options: list[Rule] = []
    if low < 0:
        options.append(Row((Text(b"-"), _spelled(max(1, -high), -low))))
    if high >= 0:
        options.append(_spelled(max(0, low), high))
    return Choice(tuple(options))


def _spelled(low: int, high: int) -> Rule:
    """Natural numbers, by how many digits they have."""
    options: list[Rule] = []
    for digits in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 0 if digits == 1 else 10 ** (digits - 1))
        last = min(high, 10**digits - 1)
        options.append(_same_length(f"{first}", f"{last}"))
    return Choice(tuple(options))


def _same_length(low: str, high: str) -> Rule:
    """Numbers between two of the same length: by their first digits, then by the rest."""
    if not low:
        return Text(b"")
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return Row((_digit(low[0], high[0]), Repeat(DIGIT, rest, rest)))
    if low[0] == high[0]:
        return Row((_digit(low[0], low[0]), _same_length(low[1:], high[1:])))
    options: list[Rule] = [
        Row((_digit(low[0], low[0]), _same_length(low[1:], "9" * rest))),
        Row((_digit(high[0], high[0]), _same_length("0" * rest, high[1:]))),
    ]
    if int(high[0]) - int(low[0]) > 1:
        inner = _digit(str(int(low[0]) + 1), str(int(high[0]) - 1))
        options.append(Row((inner, Repeat(DIGIT, rest, rest))))
    return Choice(tuple(options))


def _digit(low: str, high: str) -> Rule:
    return Bytes(((ord(low), ord(high)),))
