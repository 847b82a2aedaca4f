"""Whether two JSON Schemas have no value in common, as far as that is plain to see."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from app.formats.schema_words import TYPES, unwrapped

DEEPEST = 32  # references in a row
Find = Callable[[str], object]  # what a reference leads to


def apart(one: object, other: object, find: Find) -> bool:
    """Whether types differ, listed values do, or those of a property that both require."""
    first, second = (_resolved(schema, find) for schema in (one, other))
    kinds = kinds_of(first), kinds_of(second)
    if not kinds[0] & kinds[1]:
        return True
    if _differ(first, second):
        return True
    if kinds[0] | kinds[1] != {"object"}:
        return False
    return any(
        _differ(*(_resolved(_property(schema, name), find) for schema in (first, second)))
        for name in _names(first) & _names(second)
    )


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both list their values, and none is in both lists."""
    first, second = _values(one), _values(other)
    return first is not None and second is not None and not first & second


def _resolved(schema: object, find: Find) -> Mapping[str, Any]:
    for _ in range(DEEPEST):
        if not isinstance(schema, Mapping):
            break
        if "$ref" not in schema:
            return unwrapped(schema)
        schema = find(str(schema["$ref"]))
    return {}


def _names(schema: Mapping[str, Any]) -> set[str]:
    """Properties that every value has."""
    required = schema.get("required", ())
    found = required if isinstance(required, list) else ()
    return {name for name in found if isinstance(name, str)}


def _property(schema: Mapping[str, Any], name: str) -> object:
    properties = schema.get("properties", {})
    return properties.get(name, {}) if isinstance(properties, Mapping) else {}


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """Types of the values that a schema may accept; a whole number is a number, too."""
    values = _values(schema)
    told = schema.get("type", TYPES)
    listed_kinds = told if isinstance(told, list | tuple) else [told]
    kinds = {kind for kind in listed_kinds if isinstance(kind, str)}
    if values is not None:
        kinds = {kind_of(json.loads(value)) for value in values}
    return kinds | ({"integer"} if "number" in kinds else set())


def kind_of(value: object) -> str:
    """The type that JSON Schema says a value is of."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
    return names.get(type(value), "null" if value is None else "number")


def _values(schema: Mapping[str, Any]) -> set[str] | None:
    """All values that it may accept, as JSON; None where they are not listed."""
    listed_values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed_values, list):
        return None
    return {json.dumps(float(v) if _is_exact(v) else v) for v in listed_values}


def _is_exact(value: object) -> bool:
    """Whether it is a whole number that a fraction can equal."""
    return type(value) is int and abs(value) < 2**53
