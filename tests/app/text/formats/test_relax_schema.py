"""What is left out of a tool's schema lets more in, and forbids nothing that the schema asks for."""

import json
from typing import Any

import pytest

from app.text.formats.json_schema import schema_grammar
from app.text.formats.relax_schema import relaxed
from tests.app.text.formats.walks import has

A = {"type": "integer"}
BASE = {"type": "object", "properties": {"id": A}, "required": ["id"]}
EXTENDED = {"properties": {"a": A}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "fitting"),
    [
        ({**EXTENDED, "allOf": [BASE]}, {"id": 1, "a": 2}),
        ({**EXTENDED, "allOf": [{"$ref": "#/$defs/Base"}], "$defs": {"Base": BASE}}, {"id": 1, "a": 2}),
        ({**EXTENDED, "allOf": [{"anyOf": [BASE, {"required": ["b"]}]}]}, {"a": 1, "b": 2}),
        ({**EXTENDED, "if": {"properties": {"a": {"const": 1}}}, "then": BASE}, {"a": 1, "id": 2}),
        ({**EXTENDED, "if": True, "else": {"required": ["b"]}}, {"a": 1, "b": 2}),
        ({**EXTENDED, "dependentSchemas": {"a": BASE}}, {"a": 1, "id": 2}),
        ({**EXTENDED, "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}),
        ({**EXTENDED, "dependencies": {"a": ["b"]}}, {"a": 1, "b": 2}),
        ({**EXTENDED, "dependencies": {"a": BASE}}, {"a": 1, "id": 2}),
        ({**EXTENDED, "minProperties": 2}, {"a": 1, "b": 2}),
        ({**EXTENDED, "$dynamicRef": "#x"}, {"a": 1, "b": 2}),
        ({**EXTENDED, "patternProperties": {"^x-": A}}, {"a": 1, "x-b": 2}),
        ({"type": "object", "patternProperties": {"^x-": A}, "additionalProperties": False}, {"x-b": 2}),
        ({"type": "object", "allOf": [BASE], "unevaluatedProperties": False}, {"id": 1}),
        ({"anyOf": [BASE], "unevaluatedProperties": False}, {"id": 1}),
        ({"properties": {"in": {**EXTENDED, "allOf": [BASE]}}, "not": {}}, {"in": {"id": 1, "a": 2}}),
    ],
)  # fmt: skip
def test_required_properties_are_never_forbidden(schema: dict[str, Any], fitting: object) -> None:
    """Regression: keywords were dropped and the properties kept, so required ones were forbidden."""
    grammar = schema_grammar(relaxed(schema))
    assert has(grammar, json.dumps(fitting))
    assert not has(grammar, "[1]")


TWO = {"type": "object", "properties": {"a": A, "b": A}, "required": ["a"]}


@pytest.mark.parametrize(
    "extra",
    [
        {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
        {"allOf": [{"if": {"required": ["b"]}, "then": {"properties": {"a": {"minimum": 3}}}}]},
        {"dependentRequired": {"b": ["a"]}},
        {"minProperties": 2},
        {"not": {"required": ["c"]}},
        {"patternProperties": {}},
    ],
)
def test_conditions_leave_properties_unchanged(
    extra: dict[str, Any],
) -> None:
    assert relaxed({**TWO, **extra}) == TWO


@pytest.mark.parametrize("form", [{"a": 1}, [], 3, "uri", None])
def test_an_unknown_format_is_left_out(form: object) -> None:
    """One that was no text ended in a TypeError."""
    assert relaxed({"type": "string", "format": form}) == {"type": "string"}


@pytest.mark.parametrize("word", ["properties", "items", "allOf", "then"])
def test_a_far_too_deep_schema_has_a_grammar(word: str) -> None:
    """Hundreds of levels ended in a RecursionError."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(470):
        inner: Any = [deep] if word == "allOf" else {"a": deep} if word == "properties" else deep
        deep = {word: inner, "required": ["a"]}
    schema_grammar(relaxed(deep))
