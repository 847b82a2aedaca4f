"""Strings and numbers of a JSON Schema as grammar rules."""

from collections.abc import Mapping
from typing import Any

from app.text.formats.characters import quoted
from app.text.formats.json_text import (
    CHARACTER,
    DIGIT,
    INTEGER,
    MOST_DIGITS,
    NUMBER,
    POSITIVE,
    STRING,
)
from app.text.formats.pattern import matching
from app.text.formats.schema_keywords import BOUNDS, counts, refuse_beside
from engine.errors import InvalidRequest
from engine.grammar.rules import Bytes, Choice, Repeat, Row, Rule, Text

FARTHEST = 10 ** (MOST_DIGITS + 1) - 1


def between(low: int | None, high: int | None) -> Rule:
    """Whole numbers from ``low`` to ``high``, both included; None: no bound but the number of digits."""
    low = -FARTHEST if low is None else max(low, -FARTHEST)
    high = FARTHEST if high is None else min(high, FARTHEST)
    options: list[Rule] = []
    if low < 0:
        options.append(Row((Text(b"-"), _spelled(max(1, -high), -low))))
    if high >= 0:
        options.append(_spelled(max(0, low), high))
    return Choice(tuple(options))


def _spelled(low: int, high: int) -> Rule:
    """Natural numbers, one option per number of digits."""
    options: list[Rule] = []
    for digits in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 0 if digits == 1 else 10 ** (digits - 1))
        last = min(high, 10**digits - 1)
        options.append(_same_length(f"{first}", f"{last}"))
    return Choice(tuple(options))


def _same_length(low: str, high: str) -> Rule:
    """Numbers between two of the same length: by the first digit, then by the rest."""
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


# String formats; narrower than their standards, never wider.

_LETTERS = ((0x61, 0x7A),)
_WORD = Bytes((*_LETTERS, (0x30, 0x39), (0x41, 0x5A)))
_HEX = Bytes(((0x30, 0x39), (0x61, 0x66)))
_DASH, _COLON, _DOT = Text(b"-"), Text(b":"), Text(b".")


def _two(low: int, high: int) -> Rule:
    """Two digits, with a leading zero."""
    return Choice(tuple(Text(f"{number:02}".encode()) for number in range(low, high + 1)))


def _label() -> Rule:
    """A label of a host name: a dash is between letters or digits."""
    return Row((_WORD, Repeat(Row((Repeat(_DASH, 0, 1), _WORD)), 0, 30)))


def _days() -> Rule:
    """Valid dates; 29 February only in years divisible by 4 and not by 100."""
    year = Row((Bytes(((0x31, 0x32),)), Repeat(DIGIT, 3, 3), _DASH))
    fourth = Choice(tuple(Text(f"{number:02}".encode()) for number in range(4, 100, 4)))
    leap = Row((Bytes(((0x31, 0x32),)), DIGIT, fourth, Text(b"-02-29")))
    lengths = ((28, (2,)), (30, (4, 6, 9, 11)), (31, (1, 3, 5, 7, 8, 10, 12)))
    months = tuple(
        Row((Choice(tuple(_two(month, month) for month in same)), _DASH, _two(1, days)))
        for days, same in lengths
    )
    return Choice((Row((year, Choice(months))), leap))


_DATE = _days()
_CLOCK = Row((_two(0, 23), _COLON, _two(0, 59), _COLON, _two(0, 59), Repeat(Row((_DOT, Repeat(DIGIT, 1, 6))), 0, 1)))  # fmt: skip
_ZONE = Choice((Text(b"Z"), Row((Choice((Text(b"+"), _DASH)), _two(0, 23), _COLON, _two(0, 59)))))
_HOST = Row((_label(), Repeat(Row((_DOT, _label())), 0, 3)))
_DOMAIN = Row((_label(), _DOT, Repeat(Row((_label(), _DOT)), 0, 2), Repeat(Bytes(_LETTERS), 2, 12)))
_NAME = Row((_WORD, Repeat(Row((Repeat(Choice((_DOT, _DASH, Text(b"_"), Text(b"+"))), 0, 1), _WORD)), 0, 30)))  # fmt: skip
_BYTE = between(0, 255)

FORMATS: dict[str, Rule] = {
    "date": _DATE,
    "time": Row((_CLOCK, _ZONE)),
    "date-time": Row((_DATE, Text(b"T"), _CLOCK, _ZONE)),
    "email": Row((_NAME, Text(b"@"), _DOMAIN)),
    "hostname": _HOST,
    "ipv4": Row((_BYTE, _DOT, _BYTE, _DOT, _BYTE, _DOT, _BYTE)),
    "uuid": Row(
        tuple(
            part
            for at, many in enumerate((8, 4, 4, 4, 12))
            for part in ([_DASH] if at else []) + [Repeat(_HEX, many, many)]
        )
    ),
}


def string_rule(schema: Mapping[str, Any], place: str) -> Rule:
    """A string with a pattern, a format or a bounded length; raises InvalidRequest."""
    least, most = counts(schema, "minLength", "maxLength", place)
    if schema.get("pattern") is not None:
        refuse_beside(schema, "pattern", "type", "minLength", "maxLength", place=place)
        return _in_quotes(_pattern(schema["pattern"], least, most, place))
    form = schema.get("format")
    bounded = least > 0 or most is not None
    if form is None:
        return _in_quotes(Repeat(CHARACTER, least, most)) if bounded else STRING
    if not isinstance(form, str) or form not in FORMATS or bounded:
        why = "with a bounded length " if bounded else ""
        raise InvalidRequest(
            f"the format {form!r} {why}at {place} is not supported; choose from {', '.join(FORMATS)}"
        )
    return _in_quotes(FORMATS[form])


def _pattern(expression: object, least: int, most: int | None, place: str) -> Rule:
    if not isinstance(expression, str):
        raise InvalidRequest(f"'pattern' at {place} is {expression!r}; it must be a string")
    try:
        found = matching(expression, quoted)
    except InvalidRequest as error:
        raise InvalidRequest(f"'pattern' at {place}: {error}") from error
    bounded = found.within(least, most)
    if bounded is None:
        raise InvalidRequest(
            f"length bounds together with 'pattern' at {place} are not supported; write the length into the pattern"
        )
    return bounded


def _in_quotes(inside: Rule) -> Rule:
    return Row((Text(b'"'), inside, Text(b'"')))


def _bounds(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    found = {name: schema[name] for name in BOUNDS if name in schema}
    for name, value in found.items():
        if type(value) not in (int, float):
            raise InvalidRequest(f"{name!r} at {place} is {value!r}; it must be a number")
    return found


def integer_rule(schema: Mapping[str, Any], place: str) -> Rule:
    """Whole numbers within bounds; raises InvalidRequest."""
    bounds = _bounds(schema, place)
    if not bounds:
        return INTEGER
    lows = [-(-bounds["minimum"] // 1)] if "minimum" in bounds else []
    highs = [bounds["maximum"] // 1] if "maximum" in bounds else []
    lows += [bounds["exclusiveMinimum"] // 1 + 1] if "exclusiveMinimum" in bounds else []
    highs += [-(-bounds["exclusiveMaximum"] // 1) - 1] if "exclusiveMaximum" in bounds else []
    low = int(max(lows)) if lows else None
    high = int(min(highs)) if highs else None
    if low is not None and high is not None and low > high:
        raise InvalidRequest(f"no whole number lies within the bounds at {place}")
    if (low or 0) > FARTHEST or (high or 0) < -FARTHEST:
        raise InvalidRequest(
            f"the bounds at {place} leave only numbers with more than {len(str(FARTHEST))} digits, "
            "which are not supported"
        )
    return between(low, high)


def number_rule(schema: Mapping[str, Any], place: str) -> Rule:
    """Numbers with fractions; the only supported bound is a minimum of 0. Raises InvalidRequest."""
    bounds = _bounds(schema, place)
    if not bounds:
        return NUMBER
    if bounds == {"minimum": 0}:
        return POSITIVE
    name = next(name for name in bounds if (name, bounds[name]) != ("minimum", 0))
    raise InvalidRequest(
        f"{name!r} at {place} is not supported for numbers with fractions, only a minimum of 0; "
        "use an integer, or remove it and check the answer yourself"
    )
