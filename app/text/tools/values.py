"""Values that a call writes without quotes: which may be texts, and the JSON of each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from app.request import Tool
from app.text.formats.kinds import TYPES, kind_of, kinds_of, listed_values, unwrapped

TEXT = "string"
ROOTED = ("$defs", "definitions")  # where references of a tool's parameter lead
_LONGEST_WAY = 32  # references in a row
_PYTHON = {
    "True": "true",
    "False": "false",
    "None": "null",
}  # as templates without tojson write them


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool; ``schema`` is complete by itself."""

    name: str
    schema: Mapping[str, Any]
    kinds: frozenset[str]  # JSON types of its values

    @property
    def is_plain(self) -> bool:
        """Whether all its values are texts: what is written then needs no reading."""
        return self.kinds == {TEXT}

    @property
    def listed(self) -> list[object] | None:
        """Its values, where the schema lists them."""
        return listed_values(self.schema) or None

    def as_json(self, written: str) -> str:
        """The value that was written, as JSON: what is a text unless something else is meant."""
        meant = _PYTHON.get(written, written)
        try:
            value = json.loads(meant, parse_constant=_refuse)
        except (ValueError, RecursionError):
            value = written
        if self.is_plain or isinstance(value, str) or kind_of(value) not in self.kinds:
            return json.dumps(written, ensure_ascii=False)
        return meant


def parameters(tool: Tool) -> dict[str, Parameter]:
    """The arguments in a tool's schema, in their order."""
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: _parameter(tool, name, schema) for name, schema in properties.items()}


def other_kinds(tool: Tool) -> list[str]:
    """Other types than an object that the schema allows for a tool's arguments."""
    resolved = _resolved(tool.parameters, tool.parameters)
    named = resolved.get("type")
    if isinstance(named, list) and "object" in named:  # which is the one that is meant
        return []
    options = resolved.get("anyOf", resolved.get("oneOf"))
    found = (
        [_resolved(option, tool.parameters) for option in options]
        if isinstance(options, list)
        else [resolved]
    )
    kinds = [_kinds(one, tool.parameters) for one in found if {"type", "const", "enum"} & set(one)]
    return [kind for kind in TYPES if kind != "object" and any(kind in some for some in kinds)]


def unknown(name: str) -> Parameter:
    """An argument without a schema."""
    return Parameter(name, {}, frozenset(kinds_of({})))


def _parameter(tool: Tool, name: str, schema: object) -> Parameter:
    root = {word: tool.parameters[word] for word in ROOTED if word in tool.parameters}
    resolved = _resolved(schema, root)
    return Parameter(name, {**root, **resolved}, frozenset(_kinds(resolved, root)))


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    """Types of the values that it accepts; all of them where that is not plain to see."""
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list):
        found = [_resolved(option, root) for option in options]
        if not any({"anyOf", "oneOf"} & set(option) for option in found):
            return {kind for option in found for kind in _kinds(option, root)}
        return kinds_of({})
    if "type" not in schema and "properties" in schema:
        return {"object"}
    return kinds_of(schema)


def _resolved(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the schema says, or what it refers to; of what leads nowhere nothing is known."""
    for _ in range(_LONGEST_WAY):
        if not isinstance(schema, Mapping):
            break
        schema = unwrapped(schema)
        if "$ref" not in schema:
            return schema
        schema = _found(schema["$ref"], root)
    return {}


def _found(pointer: object, root: Mapping[str, Any]) -> object:
    """What a reference to a definition leads to; None for any other one."""
    match str(pointer).split("/"):
        case ["#", word, name] if isinstance(root.get(word), Mapping):
            return root[word].get(name)
        case _:
            return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
