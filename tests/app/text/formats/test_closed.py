"""Listed properties are all that an object has, where nothing else is said of others."""

import pytest

from app.text.formats.closed import without_others
from app.text.formats.json_schema import schema_grammar
from tests.app.text.formats.walks import has

NAMED = {"type": "object", "properties": {"a": {"type": "integer"}}}
SHUT = {**NAMED, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (NAMED, SHUT),
        ({"type": "array", "items": NAMED}, {"type": "array", "items": SHUT}),
        ({"prefixItems": [NAMED, True]}, {"prefixItems": [SHUT, True]}),
        ({"anyOf": [NAMED, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        (
            {"$ref": "#/$defs/if", "$defs": {"if": NAMED}},
            {"$ref": "#/$defs/if", "$defs": {"if": SHUT}},
        ),
        (
            {"properties": {"not": NAMED, "enum": NAMED}},
            {"properties": {"not": SHUT, "enum": SHUT}, "additionalProperties": False},
        ),
        ({"const": NAMED}, {"const": NAMED}),
    ],
)
def test_what_is_listed_is_all(schema, closed):
    assert without_others(schema) == closed


@pytest.mark.parametrize(
    "schema",
    [
        {**NAMED, "additionalProperties": True},
        {**NAMED, "additionalProperties": {"type": "string"}},
        {**NAMED, "patternProperties": {"^x": True}},
        {**NAMED, "required": ["b"]},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"allOf": [NAMED, {"properties": {"b": True}}]},
        {**NAMED, "anyOf": [{"properties": {"b": True}}, {"properties": {"c": True}}]},
        {**NAMED, "$ref": "#/$defs/b", "$defs": {"b": {"properties": {"b": True}}}},
        {**NAMED, "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
        True,
        {"type": "integer"},
    ],
)
def test_what_speaks_of_others_stays(schema):
    assert without_others(schema) == schema


def test_a_closed_schema_ends_where_its_properties_do():
    grammar = schema_grammar(without_others(NAMED))
    assert has(grammar, '{"a": 1}')
    assert not has(grammar, '{"a": 1, "b": 2}')
    assert has(schema_grammar(NAMED), '{"a": 1, "b": 2}')
