"""Schemas of tools: what no grammar here can hold is left out of them, where an answer would be refused."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.text.formats.scalars import string_rule
from app.text.formats.schema_keywords import BOUNDS, DEEPEST, REFERENCES, UNHELD
from app.text.formats.string_formats import FORMS
from engine.errors import InvalidRequest

_OF_STRINGS = (
    "pattern",
    "format",
    "minLength",
    "maxLength",
)  # what is left out first, stands first
_OF_OBJECTS = ("properties", "required", "additionalProperties")  # which let no others in
_LISTS = ("allOf", "anyOf", "oneOf")
_NAMED = ("dependencies", "dependentRequired", "dependentSchemas")
_CONDITIONS = ("if", "then", "else")
_BESIDE = (*_LISTS, *_NAMED, *_CONDITIONS, "minProperties", "patternProperties", *REFERENCES)


def heard(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The schema without the words that no grammar here can hold: it accepts more, never less.

    A grammar lets no properties in but those that a schema tells. Where what is left out may ask for
    others, nothing is held of the object but that it is one, and nothing at all ``DEEPEST`` levels
    down; it stands ``depth`` levels down itself.
    """
    found: dict[str, Any] = {}
    for word, value in schema.items():
        if word in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            found[word] = {name: _inside(inner, depth) for name, inner in value.items()}
        elif word in ("items", "additionalProperties"):
            found[word] = _inside(value, depth)
        elif word in ("anyOf", "oneOf", "prefixItems") and isinstance(value, list):
            name = "anyOf" if word == "oneOf" else word
            found[name] = [_inside(inner, depth) for inner in value]
        elif _is_held(word, value, schema):
            found[word] = value
    if asks_for_others(schema):
        kept = {word: told for word, told in found.items() if word not in _OF_OBJECTS}
        found = {"type": "object", **kept}
    return _held_string(found)


def _inside(schema: object, depth: int) -> object:
    if not isinstance(schema, Mapping):
        return schema
    return heard(schema, depth + 1) if depth + 1 < DEEPEST else True


def asks_for_others(schema: Mapping[str, Any]) -> bool:
    """Whether words beside an object's properties may ask for some that are not among these."""
    if not any(word in schema for word in _OF_OBJECTS):
        return False
    known = {*_listed(schema.get("properties")), *_listed(schema.get("required"))}
    return _reaches({word: schema[word] for word in _BESIDE if word in schema}, known, 0)


def _reaches(schema: object, known: set[str], depth: int) -> bool:
    """Whether the schema tells of other properties, or nobody knows of which."""
    if not isinstance(schema, Mapping):
        return False
    unknown = (*REFERENCES, "const", "enum")
    if (
        depth > DEEPEST
        or any(word in schema for word in unknown)
        or schema.get("patternProperties")
    ):
        return True
    least = schema.get("minProperties")
    if isinstance(least, int) and least > len(known):
        return True
    if not set(_names(schema)) <= known:
        return True
    return any(_reaches(inner, known, depth + 1) for inner in _inner(schema))


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    """The properties that it tells or asks for itself."""
    yield from _listed(schema.get("properties"))
    yield from _listed(schema.get("required"))
    for word in _NAMED:
        for names in _values(schema.get(word)):
            yield from _listed(names) if isinstance(names, list) else ()


def _listed(names: object) -> list[str]:
    """Names that stand in a list, or before schemas."""
    found = names if isinstance(names, list | Mapping) else ()
    return [name for name in found if isinstance(name, str)]


def _inner(schema: Mapping[str, Any]) -> Iterator[object]:
    """Schemas that are held to the same object."""
    for word in _LISTS:
        options = schema.get(word)
        yield from options if isinstance(options, list) else ()
    yield from (schema.get(word) for word in _CONDITIONS)
    for word in _NAMED:
        yield from _values(schema.get(word))


def _values(told: object) -> list[object]:
    return list(told.values()) if isinstance(told, Mapping) else []


def _is_held(word: str, value: object, schema: Mapping[str, Any]) -> bool:
    if word in BOUNDS:
        return schema.get("type") == "integer"
    if word == "format":
        return isinstance(value, str) and value in FORMS
    return word not in (*UNHELD, "unevaluatedProperties")


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
