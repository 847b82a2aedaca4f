"""Whether two JSON Schemas have no value in common, as far as that is plain to see."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from app.text.formats.schema_keywords import TYPES, unwrapped

DEEPEST = 32  # references in a row
Find = Callable[[str], object]  # what a reference leads to


@dataclass(frozen=True, slots=True)
class _Option:
    """What is plain to see of one schema."""

    kinds: frozenset[str]
    values: frozenset[str] | None  # all of them, as JSON; None: they are not listed
    tags: Mapping[str, frozenset[str]]  # of properties that every value has, if theirs are listed


def all_apart(options: Sequence[object], find: Find) -> bool:
    """Whether of every two types differ, listed values do, or those of a property both require."""
    seen = [_seen(option, find) for option in options]
    return all(_apart(one, other) for one, other in combinations(seen, 2))


def _seen(option: object, find: Find) -> _Option:
    schema = _resolved(option, find)
    parts = {name: _values(_resolved(_property(schema, name), find)) for name in _names(schema)}
    tags = {name: values for name, values in parts.items() if values is not None}
    return _Option(frozenset(kinds_of(schema)), _values(schema), tags)


def _apart(one: _Option, other: _Option) -> bool:
    if not one.kinds & other.kinds:
        return True
    if one.values is not None and other.values is not None:
        return not one.values & other.values
    if one.kinds | other.kinds != {"object"}:
        return False
    return any(
        not values & other.tags[name] for name, values in one.tags.items() if name in other.tags
    )


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


def _values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """All values that it may accept, as JSON; None where they are not listed."""
    listed_values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed_values, list):
        return None
    return frozenset(json.dumps(float(v) if _is_exact(v) else v) for v in listed_values)


def _is_exact(value: object) -> bool:
    """Whether it is a whole number that a fraction can equal."""
    return type(value) is int and abs(value) < 2**53
