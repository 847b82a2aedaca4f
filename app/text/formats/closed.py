"""Schemas without the properties that they do not list."""

from collections.abc import Iterator, Mapping
from typing import Any

# With one of these several schemas apply to one object, and each may list a part of its properties.
_TOGETHER = (
    "allOf", "if", "not", "dependencies", "dependentSchemas", "$dynamicRef", "$recursiveRef",
    "unevaluatedProperties",
)  # fmt: skip
_ELSEWHERE = ("$ref", "anyOf", "oneOf")
_OF_OTHERS = ("additionalProperties", "patternProperties", "propertyNames", *_ELSEWHERE)
_VALUES = ("const", "enum", "default", "examples")  # no schemas
_NAMED = ("properties", "patternProperties", "$defs", "definitions")  # schemas by name


def without_others(schema: Any) -> Any:
    """The schema in which objects with listed properties have only those, unless it speaks of others."""
    return schema if any(map(_is_spread, _schemas(schema))) else _closed(schema)


def _schemas(value: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and those in it."""
    if isinstance(value, Mapping):
        yield value
        for word, inner in value.items():
            if word in _NAMED and isinstance(inner, Mapping):
                yield from _schemas([*inner.values()])
            elif word not in _VALUES:
                yield from _schemas(inner)
    elif isinstance(value, list):
        for one in value:
            yield from _schemas(one)


def _is_spread(schema: Mapping[str, Any]) -> bool:
    """Whether properties of one object may be listed in several places."""
    elsewhere = "properties" in schema and any(word in schema for word in _ELSEWHERE)
    return elsewhere or any(word in schema for word in _TOGETHER)


def _closed(value: Any) -> Any:
    if isinstance(value, list):
        return [_closed(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {word: _inner(word, inner) for word, inner in value.items()}
    listed, asked = value.get("properties"), value.get("required")
    names = {*listed} if isinstance(listed, Mapping) else set()
    needed = {*map(str, asked)} if isinstance(asked, list) else set()
    if names and needed <= names and not any(word in value for word in _OF_OTHERS):
        found["additionalProperties"] = False
    return found


def _inner(word: str, value: Any) -> Any:
    if word in _VALUES:
        return value
    if word in _NAMED and isinstance(value, Mapping):
        return {name: _closed(inner) for name, inner in value.items()}
    return _closed(value)
