"""Parts of grammars in llguidance's Lark notation."""

import json
import re
from collections.abc import Mapping
from typing import Any

from app.text.formats.check import checker
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar

# What a model could repeat for ever is bounded: a space or two, or a line or two and their indentation.
SPACE = r"(?: {1,2}|\t|(?:\r?\n){1,2}[ \t]{0,48})"
ANY_TEXT = "/(?s:.*)/"
_OPTIONS = {
    "whitespace_pattern": SPACE,
    "json_allow_general_unicode_escapes": True,
}


def literal(text: str) -> str:
    """Exactly this text; a rule of its own nowhere."""
    quoted = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return quoted if text else '""'


def json_value(schema: Mapping[str, Any], *, any_option: bool = False) -> str:
    """JSON by a schema that llguidance can hold; ``any_option`` takes oneOf for anyOf."""
    options = _OPTIONS | ({"coerce_one_of": True} if any_option else {})
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def json_text(schema: Mapping[str, Any], *, any_option: bool = False) -> str:
    """A grammar of one JSON text; some models' first tokens have a space, and some end with a line."""
    return (
        '%llguidance {"allow_initial_skip": true, "ignore_once": true}\n'
        f"%ignore /{SPACE}/\n"
        f'start: value "\\n"?\n'
        f"value: {json_value(schema, any_option=any_option)}\n"
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
