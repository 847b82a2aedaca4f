"""Whether JSON Schemas are mutually exclusive, as far as a simple check can prove it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from app.text.formats.kinds import kinds_of, listed_values, unwrapped

DEEPEST = 32  # references in a row
MOST_OPTIONS = 128  # that are compared in pairs
Find = Callable[[str], object]  # the value that a reference points to


@dataclass(frozen=True, slots=True)
class _Option:
    """What the check reads of one schema."""

    kinds: frozenset[str]
    values: frozenset[str] | None  # all of them, as JSON; None: they are not listed
    tags: Mapping[str, frozenset[str]]  # of properties that every value has, if theirs are listed


def mutually_exclusive(options: Sequence[object], find: Find) -> bool:
    """Whether each pair differs in type, in listed values, or in those of a property that both require."""
    if len(options) > MOST_OPTIONS:
        return False
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


def _values(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The listed values, as JSON; None if the schema lists none."""
    values = listed_values(schema)
    if values is None:
        return None
    return frozenset(json.dumps(float(v) if _is_exact(v) else v) for v in values)


def _is_exact(value: object) -> bool:
    """Whether a float can equal this integer."""
    return type(value) is int and abs(value) < 2**53
