"""Strings and numbers of a JSON Schema."""

from collections.abc import Mapping
from typing import Any

from app.text.formats.characters import quoted
from app.text.formats.json_text import CHARACTER, INTEGER, NUMBER, POSITIVE, STRING
from app.text.formats.numbers import FARTHEST, between
from app.text.formats.pattern import matching
from app.text.formats.schema_keywords import BOUNDS, counts, refuse_beside
from app.text.formats.string_formats import FORMS
from engine.errors import InvalidRequest
from engine.grammar.rules import Repeat, Row, Rule, Text


def string_rule(schema: Mapping[str, Any], place: str) -> Rule:
    """Of a bounded length, of a form, or as a pattern has it; raises InvalidRequest."""
    least, most = counts(schema, "minLength", "maxLength", place)
    if schema.get("pattern") is not None:
        refuse_beside(schema, "pattern", "type", "minLength", "maxLength", place=place)
        return _in_quotes(_pattern(schema["pattern"], least, most, place))
    form = schema.get("format")
    bounded = least > 0 or most is not None
    if form is None:
        return _in_quotes(Repeat(CHARACTER, least, most)) if bounded else STRING
    if not isinstance(form, str) or form not in FORMS or bounded:
        why = "with a bounded length " if bounded else ""
        raise InvalidRequest(
            f"the format {form!r} {why}at {place} cannot be held yet; there are {', '.join(FORMS)}"
        )
    return _in_quotes(FORMS[form])


def _pattern(expression: object, least: int, most: int | None, place: str) -> Rule:
    if not isinstance(expression, str):
        raise InvalidRequest(f"'pattern' at {place} is {expression!r}; it must be a text")
    try:
        found = matching(expression, quoted)
    except InvalidRequest as error:
        raise InvalidRequest(f"'pattern' at {place}: {error}") from error
    held = found.within(least, most)
    if held is None:
        raise InvalidRequest(
            f"the length beside 'pattern' at {place} cannot be held; write it into the pattern"
        )
    return held


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
    if (low or 0) > FARTHEST or (high or 0) < -FARTHEST:
        raise InvalidRequest(
            f"the bounds at {place} leave only numbers with more than {len(str(FARTHEST))} digits, "
            "which cannot be held"
        )
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
