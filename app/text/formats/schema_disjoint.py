"""Whether JSON Schemas are mutually exclusive, as far as a simple check can prove it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from app.text.formats.schema_keywords import TYPES, unwrapped

DEEPEST = 32  # references in a row
Find = Callable[[str], object]  # the value that a reference points to


@dataclass(frozen=True, slots=True)
class _Option:
    """What the check reads of one schema."""

    kinds: frozenset[str]
    values: frozenset[str] | None  # all of them, as JSON; None: they are not listed
    tags: Mapping[str, frozenset[str]]  # of properties that every value has, if theirs are listed


def mutually_exclusive(options: Sequence[object], find: Find) -> bool:
    """Whether each pair differs in type, in listed values, or in those of a property that both require."""
    found = [_option(option, find) for option in options]
    return all(_exclusive(one, other) for one, other in combinations(found, 2))


def _option(option: object, find: Find) -> _Option:
    schema = _resolved(option, find)
    parts = {name: _values(_resolved(_property(schema, name), find)) for name in _names(schema)}
    tags = {name: values for name, values in parts.items() if values is not None}
    return _Option(frozenset(kinds_of(schema)), _values(schema), tags)


def _exclusive(one: _Option, other: _Option) -> bool:
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
    """Required properties."""
    required = schema.get("required", ())
    found = required if isinstance(required, list) else ()
    return {name for name in found if isinstance(name, str)}


def _property(schema: Mapping[str, Any], name: str) -> object:
    properties = schema.get("properties", {})
    return properties.get(name, {}) if isinstance(properties, Mapping) else {}


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """Types of the values that a schema may accept; a number may be an integer."""
    values = _values(schema)
    declared = schema.get("type", TYPES)
    listed_kinds = declared if isinstance(declared, list | tuple) else [declared]
    kinds = {kind for kind in listed_kinds if isinstance(kind, str)}
    if values is not None:
        kinds = {kind_of(json.loads(value)) for value in values}
    return kinds | ({"integer"} if "number" in kinds else set())


def kind_of(value: object) -> str:
    """The JSON Schema type of a value."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
    return names.get(type(value), "null" if value is None else "number")


def _values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The listed values, as JSON; None if the schema lists none."""
    listed_values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed_values, list):
        return None
    return frozenset(json.dumps(float(v) if _is_exact(v) else v) for v in listed_values)


def _is_exact(value: object) -> bool:
    """Whether a float can equal this integer."""
    return type(value) is int and abs(value) < 2**53
