"""What ends llguidance or runs too long is found before an answer begins, and harms nothing else."""

import time

import pytest

from app.text.formats.check import SECONDS, checker
from app.text.formats.gbnf import gbnf_grammar
from app.text.formats.json_schema import held_schema, schema_grammar
from engine.errors import InvalidRequest
from tests.app.text.formats.walks import has, made

CHAIN = "\n".join(f"r{n}: r{n + 1}" for n in range(20_000))


@pytest.mark.parametrize(
    "source",
    [
        f'start: r0\n{CHAIN}\nr20000: "a"',  # the library's own stack runs over
        "start: start",
        "start: /a{2}/ & /b*/",
        "start: other",
    ],
)
def test_what_cannot_be_compiled_is_a_sentence(source):
    assert checker().trouble_with(source)
    assert checker().trouble_with('start: "a"') == ""


def test_rules_without_end_and_thousands_of_rules_are_refused_or_held():
    many = "root ::= r0\n" + "".join(f"r{n} ::= r{n + 1}\n" for n in range(5000)) + 'r5000 ::= "a"'
    found, sentence = made(gbnf_grammar, many)
    assert (found is None) == bool(sentence)
    assert "\n" not in sentence
    assert has(gbnf_grammar('root ::= "a"'), "a")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(1000)}},
        {"type": "array", "minItems": 1000, "maxItems": 1000, "items": {"type": "string", "maxLength": 9}},
        {"enum": [f"value {n}" for n in range(10_000)]},
        {"type": "string", "maxLength": 65_535},
        {"$defs": {f"d{n}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(900)}
         | {"d900": {}}, "$ref": "#/$defs/d0"},
    ],
)  # fmt: skip
def test_large_schemas_take_little_time(schema):
    started = time.monotonic()
    found, sentence = made(schema_grammar, schema)
    assert (found is None) == bool(sentence)
    assert "\n" not in sentence
    assert time.monotonic() - started < 2 * SECONDS


NESTED = {
    "type": "object",
    "properties": {"a": {"uniqueItems": True}, "b": {"properties": {"c": {"format": "iri"}}}},
}


def test_what_is_let_go_is_the_smallest_part_and_named():
    found = held_schema({**NESTED, "required": ["d"]}, frees=True)
    assert set(found.freed) == {
        "uniqueItems at #/properties/a",
        "format at #/properties/b/properties/c",
    }
    with pytest.raises(InvalidRequest, match="'uniqueItems' at #/properties/a is not supported"):
        held_schema(NESTED)


def test_options_that_may_hold_at_once_are_named():
    schema = {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2}]}
    assert schema_grammar({"properties": {"a/b": schema}}).freed == ("oneOf at #/properties/a~1b",)
    apart = [
        {"type": "object", "properties": {"t": {"const": kind}}, "required": ["t"]} for kind in "ab"
    ]
    assert (
        schema_grammar({"oneOf": [{"$ref": "#/$defs/0"}, apart[1]], "$defs": {"0": apart[0]}}).freed
        == ()
    )
