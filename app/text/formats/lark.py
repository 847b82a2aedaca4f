"""Parts of grammars in llguidance's Lark notation."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from app.text.formats.check import checker
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar

# What a model could repeat for ever is bounded: a space or two, or a line and its indentation. Small models
# fill all that they may between any two signs, until no tokens are left.
SPACE = r"(?: {1,2}|\t|\r?\n(?: {0,24}|\t{0,8}))"
ANY_TEXT = "/(?s:.*)/"
_SHORT = 'nrbtf\\"'  # letters of escapes
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BY_NAME = ("$defs", "properties", "patternProperties")  # words that have schemas
_ONE, _SEVERAL = ("items", "additionalProperties"), ("allOf", "anyOf", "oneOf", "prefixItems")
_OPTIONS: dict[str, Any] = {
    "whitespace_pattern": SPACE,
    "json_allow_general_unicode_escapes": True,
}


def literal(text: str) -> str:
    """Exactly this text; a rule of its own nowhere."""
    quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return quoted if text else '""'


def json_value(schema: Mapping[str, Any], *, any_option: bool = False) -> str:
    """JSON by a schema that llguidance can hold; ``any_option`` takes oneOf for anyOf.

    llguidance compares names as they are written: no name has an escape that it could do without, or
    it would be an unlisted one. Where one pattern cannot say that, no text has such an escape.
    """
    options = _OPTIONS | ({"coerce_one_of": True} if any_option else {})
    several = any(map(_tells_names, _schemas(schema)))
    found = _value(_with_plain_names(schema), options)
    if several or (found != _value(schema, options) and checker().trouble_with(_text(found))):
        plain = {"json_allow_general_unicode_escapes": False, "json_allowed_escapes": _SHORT}
        return _value(schema, options | plain)
    return found


def _value(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def _tells_names(schema: Mapping[str, Any]) -> bool:
    """Whether unlisted names are of several kinds or asked for, or listed ones need an escape."""
    listed, asked = schema.get("properties") or {}, schema.get("required") or ()
    others = listed and isinstance(schema.get("additionalProperties"), Mapping)
    kinds = bool(others or schema.get("patternProperties")) or not {*listed}.issuperset(asked)
    return kinds or any(map(_CONTROL.search, listed))


def _with_plain_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, and those in it, in which a pattern matches unlisted names: patterns have no escapes."""
    found = {word: _within(word, value, _with_plain_names) for word, value in schema.items()}
    if found.get("properties") and found.get("additionalProperties", True) is True:
        found |= {"patternProperties": {"^(?s:.*)$": True}, "additionalProperties": False}
    return found


def _schemas(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schema and those in it."""
    found = [schema]

    def add(inner: Mapping[str, Any]) -> None:
        found.extend(_schemas(inner))

    for word, value in schema.items():
        _within(word, value, add)
    return found


def _within(word: str, value: Any, change: Callable[[Mapping[str, Any]], Any]) -> Any:
    """What a word says, with the schemas in it changed."""
    match value:
        case Mapping() if word in _BY_NAME:
            return {
                name: change(one) if isinstance(one, Mapping) else one
                for name, one in value.items()
            }
        case Mapping() if word in _ONE:
            return change(value)
        case list() if word in _SEVERAL:
            return [change(one) if isinstance(one, Mapping) else one for one in value]
        case _:
            return value


def json_text(schema: Mapping[str, Any], *, any_option: bool = False) -> str:
    """A grammar of one JSON text; some models' first tokens have a space, and some end with a line."""
    return _text(json_value(schema, any_option=any_option))


def _text(value: str) -> str:
    return (
        '%llguidance {"allow_initial_skip": true, "ignore_once": true}\n'
        f"%ignore /{SPACE}/\n"
        f'start: value "\\n"?\n'
        f"value: {value}\n"
    )


def up_to(marker: str) -> str:
    """The body of a rule with ``[lazy]``: any text up to the first ``marker``, which it includes."""
    return f"/(?s:.*)/ {literal(marker)}"


def without(marker: str) -> str:
    """The body of a terminal: any text in which the marker is not, not even at its end."""
    return f"{ANY_TEXT} & ~({ANY_TEXT} {literal(marker)} {ANY_TEXT})"


def escaped(text: str) -> str:
    """A text within a regular expression of llguidance."""
    return re.sub(r"([\\.+*?()|\[\]{}^$#&\-~/\"])", r"\\\1", text)


def either(one: Grammar, other: Grammar) -> Grammar:
    """A grammar of the answers of both. Raises InvalidRequest where they are too much together."""
    source = f"start: one | other\none: %lark {{\n{one.source}\n}}\nother: %lark {{\n{other.source}\n}}\n"
    if trouble := checker().trouble_with(source):
        raise InvalidRequest(f"the tools and the format cannot be held together: {trouble}")
    return Grammar(source, one.freed + other.freed, one.most_digits or other.most_digits)
