"""Types of JSON Schema: of values, and of what a schema may accept."""

from collections.abc import Mapping
from typing import Any

TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}


def kind_of(value: object) -> str:
    """The JSON Schema type of a value."""
    return _NAMES.get(type(value), "null" if value is None else "number")


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """Types of the values that a schema may accept; a number may be an integer."""
    values = listed_values(schema)
    declared = schema.get("type", TYPES)
    listed = declared if isinstance(declared, list | tuple) else [declared]
    kinds = {kind for kind in listed if isinstance(kind, str)}
    if values is not None:
        kinds = {kind_of(value) for value in values}
    return kinds | ({"integer"} if "number" in kinds else set())


def listed_values(schema: Mapping[str, Any]) -> list[Any] | None:
    """The only values that a schema accepts, where it lists them."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else None


def unwrapped(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The only schema of an allOf without other types: how references with a title are written."""
    while set(schema) - {"title", "description", "default", "examples"} == {"allOf"}:
        match schema["allOf"]:
            case [Mapping() as only]:
                schema = only
            case _:
                break
    return schema
