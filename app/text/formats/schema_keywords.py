"""The words of JSON Schema: which there are, which are not held yet, and what they may be."""

from collections.abc import Mapping
from typing import Any

from engine.errors import InvalidRequest

DEEPEST = 32  # levels of a schema
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
UNHELD = (
    "$dynamicRef", "$recursiveRef", "allOf", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "if",
    "maxProperties", "minProperties", "multipleOf", "not", "patternProperties",
    "propertyNames", "then", "unevaluatedItems", "uniqueItems",
)  # fmt: skip
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NEVER_EMPTY = ("contains", "else", "if", "not", "then")  # which say something even of {}
OF_OBJECTS = ("properties", "required", "additionalProperties", "unevaluatedProperties")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
ASSERTING = (
    *UNHELD, *BOUNDS, "$ref", "additionalProperties", "anyOf", "const", "enum", "format", "items",
    "maxItems", "maxLength", "minItems", "minLength", "oneOf", "pattern", "prefixItems",
    "properties", "required", "type", "unevaluatedProperties",
)  # fmt: skip


def unwrapped(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an allOf of one holds, where nothing else is said: so are references with a title written."""
    while set(schema) & set(ASSERTING) == {"allOf"}:
        match schema["allOf"]:
            case [Mapping() as only]:
                schema = only
            case _:
                break
    return schema


def refuse_beside(schema: Mapping[str, Any], *heeded: str, place: str) -> None:
    """Raise InvalidRequest for a word that would be passed over beside the first of ``heeded``."""
    if more := sorted(set(schema) & set(ASSERTING) - set(heeded)):
        raise InvalidRequest(f"{more[0]!r} beside {heeded[0]!r} at {place} cannot be held yet")


def refuse_unheld(schema: Mapping[str, Any], place: str) -> None:
    """Raise InvalidRequest for a word that no grammar here can hold, unless it says nothing."""
    for word in UNHELD:
        if word in schema and (word in _NEVER_EMPTY or schema[word] not in (False, [], {})):
            raise InvalidRequest(
                f"{word!r} at {place} cannot be held yet; leave it out and check the answer"
            )


def refuse_rebased(schema: Mapping[str, Any], place: str) -> None:
    """Raise InvalidRequest for a schema within one whose references lead from another beginning."""
    if place == "#" or not isinstance(schema.get("$id"), str):
        return
    ahead: list[object] = [schema]
    while ahead:
        match ahead.pop():
            case {"$ref": _}:
                raise InvalidRequest(
                    f"'$id' at {place} cannot be held yet above references; leave it out"
                )
            case Mapping() as inner:
                ahead += inner.values()
            case list() as several:
                ahead += several
            case _:
                pass


def told_kinds(schema: Mapping[str, Any], place: str) -> list[str]:
    """The types; where none is told, what its words are about, and none where they say nothing.

    Raises InvalidRequest.
    """
    told = schema.get("type")
    if told is None:
        about = (
            ("object", OF_OBJECTS),
            ("array", ("items", "prefixItems", "minItems", "maxItems")),
            ("string", ("minLength", "maxLength", "format", "pattern")),
            ("number", BOUNDS),
        )
        return [kind for kind, words in about if any(word in schema for word in words)][:1]
    kinds = [told] if isinstance(told, str) else told
    if not isinstance(kinds, list) or not kinds or any(kind not in TYPES for kind in kinds):
        raise InvalidRequest(f"'type' at {place} is {told!r}; it may be {', '.join(TYPES)}")
    return kinds


def counts(schema: Mapping[str, Any], least: str, most: str, place: str) -> tuple[int, int | None]:
    """Two bounds that are natural numbers; raises InvalidRequest."""
    low, high = schema.get(least, 0), schema.get(most)
    for name, value in ((least, low), (most, high)):
        if name in schema and (type(value) is not int or value < 0):
            raise InvalidRequest(
                f"{name!r} at {place} is {value!r}; it must be a whole number from 0 on"
            )
    if high is not None and low > high:
        raise InvalidRequest(f"{least!r} at {place} is {low}, which is more than {most!r}, {high}")
    return low, high
