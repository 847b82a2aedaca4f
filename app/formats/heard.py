"""Schemas of tools: what no grammar here can hold is left out of them, where an answer would be refused."""

from collections.abc import Mapping
from typing import Any

from app.formats.scalars import string_rule
from app.formats.schema_words import BOUNDS, UNHELD
from app.formats.strings import FORMS
from engine.errors import InvalidRequest

_OF_STRINGS = (
    "pattern",
    "format",
    "minLength",
    "maxLength",
)  # what is left out first, stands first


def heard(schema: object) -> object:
    """The schema without the words that no grammar here can hold: it accepts more, never less."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for word, value in schema.items():
        if word in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            found[word] = {name: heard(inner) for name, inner in value.items()}
        elif word in ("items", "additionalProperties"):
            found[word] = heard(value)
        elif word in ("anyOf", "oneOf", "prefixItems") and isinstance(value, list):
            name = "anyOf" if word == "oneOf" else word
            found[name] = [heard(inner) for inner in value]
        elif _is_held(word, value, schema):
            found[word] = value
    return _held_string(found)


def _is_held(word: str, value: object, schema: Mapping[str, Any]) -> bool:
    if word in BOUNDS:
        return schema.get("type") == "integer"
    return word not in UNHELD and (word != "format" or value in FORMS)


def _held_string(schema: dict[str, Any]) -> dict[str, Any]:
    """Of words about strings as many as can be held together; none beside values that are listed."""
    listed = "enum" in schema or "const" in schema
    about = {word for word in _OF_STRINGS if word in schema and not listed}
    for word in _OF_STRINGS:
        try:
            string_rule({word: schema[word] for word in about}, "#")
        except InvalidRequest:
            about.discard(word)
    return {word: told for word, told in schema.items() if word in about or word not in _OF_STRINGS}
