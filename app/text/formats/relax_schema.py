"""Drop unsupported keywords from tool schemas, so that a grammar can be made of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.text.formats.scalars import FORMATS, string_rule
from app.text.formats.schema_keywords import BOUNDS, DEEPEST, REFERENCES, UNSUPPORTED
from engine.errors import InvalidRequest

_OF_STRINGS = (
    "pattern",
    "format",
    "minLength",
    "maxLength",
)  # dropped in this order
_OF_OBJECTS = ("properties", "required", "additionalProperties")  # which exclude other properties
_LISTS = ("allOf", "anyOf", "oneOf")
_NAMED = ("dependencies", "dependentRequired", "dependentSchemas")
_CONDITIONS = ("if", "then", "else")
_OTHERS = (*_LISTS, *_NAMED, *_CONDITIONS, "minProperties", "patternProperties", *REFERENCES)


def relaxed(schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The schema without unsupported keywords: it accepts more, never less.

    A grammar allows only the declared properties. If a dropped keyword may require others, the
    object may have any. Schemas ``DEEPEST`` levels down accept everything; ``depth`` is the
    level of this one.
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
        elif _is_supported(word, value, schema):
            found[word] = value
    if may_require_others(schema):
        kept = {word: value for word, value in found.items() if word not in _OF_OBJECTS}
        found = {"type": "object", **kept}
    return _relaxed_string(found)


def _inside(schema: object, depth: int) -> object:
    if not isinstance(schema, Mapping):
        return schema
    return relaxed(schema, depth + 1) if depth + 1 < DEEPEST else True


def may_require_others(schema: Mapping[str, Any]) -> bool:
    """Whether other keywords may require properties that are not declared."""
    if not any(word in schema for word in _OF_OBJECTS):
        return False
    known = {*_listed(schema.get("properties")), *_listed(schema.get("required"))}
    return _requires_others({word: schema[word] for word in _OTHERS if word in schema}, known, 0)


def _requires_others(schema: object, known: set[str], depth: int) -> bool:
    """Whether the schema names other properties, or unknown ones."""
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
    return any(_requires_others(inner, known, depth + 1) for inner in _inner(schema))


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    """The properties that the schema itself names."""
    yield from _listed(schema.get("properties"))
    yield from _listed(schema.get("required"))
    for word in _NAMED:
        for names in _values(schema.get(word)):
            yield from _listed(names) if isinstance(names, list) else ()


def _listed(names: object) -> list[str]:
    """The names in a list, or the keys of a mapping."""
    found = names if isinstance(names, list | Mapping) else ()
    return [name for name in found if isinstance(name, str)]


def _inner(schema: Mapping[str, Any]) -> Iterator[object]:
    """Inner schemas that apply to the same object."""
    for word in _LISTS:
        options = schema.get(word)
        yield from options if isinstance(options, list) else ()
    yield from (schema.get(word) for word in _CONDITIONS)
    for word in _NAMED:
        yield from _values(schema.get(word))


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, Mapping) else []


def _is_supported(word: str, value: object, schema: Mapping[str, Any]) -> bool:
    if word in BOUNDS:
        return schema.get("type") == "integer"
    if word == "format":
        return isinstance(value, str) and value in FORMATS
    return word not in (*UNSUPPORTED, "unevaluatedProperties")


def _relaxed_string(schema: dict[str, Any]) -> dict[str, Any]:
    """Keep as many keywords about strings as are supported together; none next to listed values."""
    listed = "enum" in schema or "const" in schema
    about = {word for word in _OF_STRINGS if word in schema and not listed}
    for word in _OF_STRINGS:
        try:
            string_rule({word: schema[word] for word in about}, "#")
        except InvalidRequest:
            about.discard(word)
    return {
        word: value for word, value in schema.items() if word in about or word not in _OF_STRINGS
    }
