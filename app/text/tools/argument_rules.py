"""The arguments of one tool as rules of a grammar, where all of them are one JSON object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.request import Tool
from app.text.formats.json_schema import held_schema
from app.text.formats.lark import json_value

ANY_OBJECT = {"type": "object"}
NO_ARGUMENTS: Mapping[str, Any] = {"properties": {}}  # what a tool without a schema takes
_OPEN = (  # with one of these a schema may speak of properties that it does not list
    "$ref", "additionalProperties", "allOf", "anyOf", "dependencies", "dependentRequired",
    "dependentSchemas", "if", "minProperties", "oneOf", "patternProperties", "propertyNames",
    "unevaluatedProperties",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arguments:
    """How the arguments of one tool are written: an expression, and the rules that it needs."""

    expression: str
    rules: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()  # what its schema asks for and is not held


def any_object(number: int, _: Tool) -> Arguments:
    """Arguments without a usable schema."""
    name = f"arguments-{number}"
    return Arguments(name, (f"{name}: {json_value(ANY_OBJECT)}",))


def object_arguments(number: int, tool: Tool) -> Arguments:
    """Arguments by the tool's schema; one that is not strict is enforced as far as possible."""
    schema = tool.parameters or NO_ARGUMENTS
    found = held_schema(closed({**schema, **ANY_OBJECT}), frees=not tool.strict)
    name = f"arguments-{number}"
    freed = tuple(f"{word} of {tool.name}" for word in found.freed)
    return Arguments(name, (f"{name}: {found.value}",), freed)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without arguments that it does not list, unless it speaks of others."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or any(word in schema for word in _OPEN):
        return dict(schema)
    needed = required if isinstance(required, list) else []
    others = {name: True for name in needed if isinstance(name, str) and name not in properties}
    return {**schema, "properties": {**properties, **others}, "additionalProperties": False}
