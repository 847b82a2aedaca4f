"""Strings and numbers of a JSON Schema."""

from collections.abc import Mapping
from typing import Any

from app.formats.json_text import CHARACTER, INTEGER, NUMBER, POSITIVE, STRING
from app.formats.numbers import between
from app.formats.schema_words import BOUNDS, counts
from app.formats.strings import FORMS
from engine.errors import InvalidRequest
from engine.grammar.rules import Repeat, Row, Rule, Text


def string_rule(schema: Mapping[str, Any], place: str) -> Rule:
    """Of a bounded length, or of a form; raises InvalidRequest."""
    form = schema.get("format")
    least, most = counts(schema, "minLength", "maxLength", place)
    bounded = least > 0 or most is not None
    if form is None:
        if not bounded:
            return STRING
        return Row((Text(b'"'), Repeat(CHARACTER, least, most), Text(b'"')))
    if not isinstance(form, str) or form not in FORMS or bounded:
        why = "with a bounded length " if bounded else ""
        raise InvalidRequest(
            f"the format {form!r} {why}at {place} cannot be held yet; there are {', '.join(FORMS)}"
        )
    return Row((Text(b'"'), FORMS[form], Text(b'"')))


def _bounds(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    found = {name: schema[name] for name in BOUNDS if name in schema}
    for name, value in found.items():
        if type(value) not in (int, float):
            raise InvalidRequest(f"{name!r} at {place} is {value!r}; it must be a number")
    return found


def integer_rule(schema: Mapping[str, Any], place: str) -> Rule:
    """Whole numbers within bounds; raises InvalidRequest."""
    told = _bounds(schema, place)
    if not told:
        return INTEGER
    lows = [-(-told["minimum"] // 1)] if "minimum" in told else []
    highs = [told["maximum"] // 1] if "maximum" in told else []
    lows += [told["exclusiveMinimum"] // 1 + 1] if "exclusiveMinimum" in told else []
    highs += [-(-told["exclusiveMaximum"] // 1) - 1] if "exclusiveMaximum" in told else []
    low = int(max(lows)) if lows else None
    high = int(min(highs)) if highs else None
    if low is not None and high is not None and low > high:
        raise InvalidRequest(f"no whole number lies within the bounds at {place}")
    return between(low, high)


def number_rule(schema: Mapping[str, Any], place: str) -> Rule:
    """Of numbers with fractions only "not negative" can be held; raises InvalidRequest."""
    told = _bounds(schema, place)
    if not told:
        return NUMBER
    if told == {"minimum": 0}:
        return POSITIVE
    name = next(name for name in told if (name, told[name]) != ("minimum", 0))
    raise InvalidRequest(
        f"{name!r} at {place} cannot be held for numbers with fractions, only a minimum of 0; "
        "use an integer, or leave it out and check the answer"
    )
