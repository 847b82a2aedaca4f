"""The keywords of JSON Schema: which are supported, and what values they may have."""

from collections.abc import Mapping
from typing import Any

from engine.errors import InvalidRequest

DEEPEST = 32  # levels of a schema
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
UNSUPPORTED = (
    "$dynamicRef", "$recursiveRef", "allOf", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "if",
    "maxProperties", "minProperties", "multipleOf", "not", "patternProperties",
    "propertyNames", "then", "unevaluatedItems", "uniqueItems",
)  # fmt: skip
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NEVER_EMPTY = ("contains", "else", "if", "not", "then")  # which have a meaning even with {}
OF_OBJECTS = ("properties", "required", "additionalProperties", "unevaluatedProperties")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
ASSERTING = (
    *UNSUPPORTED, *BOUNDS, "$ref", "additionalProperties", "anyOf", "const", "enum", "format", "items",
    "maxItems", "maxLength", "minItems", "minLength", "oneOf", "pattern", "prefixItems",
    "properties", "required", "type", "unevaluatedProperties",
)  # fmt: skip


def unwrapped(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The only schema of an allOf without other keywords: how references with a title are written."""
    while set(schema) & set(ASSERTING) == {"allOf"}:
        match schema["allOf"]:
            case [Mapping() as only]:
                schema = only
            case _:
                break
    return schema


def refuse_beside(schema: Mapping[str, Any], *read: str, place: str) -> None:
    """Raise InvalidRequest for a keyword that would be ignored next to the first of ``read``."""
    if more := sorted(set(schema) & set(ASSERTING) - set(read)):
        raise InvalidRequest(f"{more[0]!r} together with {read[0]!r} at {place} is not supported")


def refuse_unsupported(schema: Mapping[str, Any], place: str) -> None:
    """Raise InvalidRequest for an unsupported keyword, unless it has no effect."""
    for word in UNSUPPORTED:
        if word in schema and (word in _NEVER_EMPTY or schema[word] not in (False, [], {})):
            raise InvalidRequest(
                f"{word!r} at {place} is not supported; remove it and validate the answer yourself"
            )


def refuse_rebased(schema: Mapping[str, Any], place: str) -> None:
    """Raise InvalidRequest for an inner '$id' that changes the base of references."""
    if place == "#" or not isinstance(schema.get("$id"), str):
        return
    ahead: list[object] = [schema]
    while ahead:
        match ahead.pop():
            case {"$ref": _}:
                raise InvalidRequest(
                    f"'$id' at {place} is not supported above references; remove it"
                )
            case Mapping() as inner:
                ahead += inner.values()
            case list() as several:
                ahead += several
            case _:
                pass


def declared_types(schema: Mapping[str, Any], place: str) -> list[str]:
    """The declared types, else the type that the other keywords are about, else none.

    Raises InvalidRequest.
    """
    declared = schema.get("type")
    if declared is None:
        about = (
            ("object", OF_OBJECTS),
            ("array", ("items", "prefixItems", "minItems", "maxItems")),
            ("string", ("minLength", "maxLength", "format", "pattern")),
            ("number", BOUNDS),
        )
        return [kind for kind, words in about if any(word in schema for word in words)][:1]
    kinds = [declared] if isinstance(declared, str) else declared
    if not isinstance(kinds, list) or not kinds or any(kind not in TYPES for kind in kinds):
        raise InvalidRequest(f"'type' at {place} is {declared!r}; it may be {', '.join(TYPES)}")
    return kinds


def counts(schema: Mapping[str, Any], least: str, most: str, place: str) -> tuple[int, int | None]:
    """A lower and an upper bound, natural numbers; raises InvalidRequest."""
    low, high = schema.get(least, 0), schema.get(most)
    for name, value in ((least, low), (most, high)):
        if name in schema and (type(value) is not int or value < 0):
            raise InvalidRequest(
                f"{name!r} at {place} is {value!r}; it must be a whole number, 0 or more"
            )
    if high is not None and low > high:
        raise InvalidRequest(f"{least!r} at {place} is {low}, which is more than {most!r}, {high}")
    return low, high
