"""Whatever text a schema's grammar lets through, the schema accepts; and what people write passes."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.text.formats.json_schema import LARGEST, schema_grammar
from app.text.formats.schema_values import FORMATS
from app.text.formats.schema_words import DEEPEST
from engine.errors import InvalidRequest
from tests.app.text.formats.accepting import accepts
from tests.app.text.formats.walks import has, said

NAMES = st.sampled_from(["a", "b", 'quo"te', "é", "long name"])
VALUES = st.sampled_from([0, 1, -3, 1.5, "x", "é\n", "", None, True, False, [1], {"k": [None]}])


def bounds(low, high):
    """Two schema words of which the first is not more than the second, either of them absent."""
    pairs = st.tuples(st.integers(-120, 1200), st.integers(0, 1500))
    both = pairs.map(lambda two: {low: two[0], high: two[0] + two[1]})
    return st.one_of(st.just({}), both, both.map(lambda d: {low: d[low]}), both.map(lambda d: {high: d[high]}))  # fmt: skip


def counted(low, high, most):
    pairs = st.tuples(st.integers(0, most), st.integers(0, most))
    return st.one_of(st.just({}), pairs.map(lambda two: {low: two[0], high: sum(two)}))


def typed(kind, words):
    return words.map(lambda found: {"type": kind, **found})


def objects(children):
    def made(found):
        properties, required, others = found
        named = [name for name in properties if name in required]
        return {"type": "object", "properties": properties, "required": named, **others}

    others = st.sampled_from([{}, {"additionalProperties": False}])
    return st.tuples(st.dictionaries(NAMES, children, max_size=4), st.sets(NAMES), others).map(made)


def composed(children):
    return st.one_of(
        objects(children),
        st.tuples(children, counted("minItems", "maxItems", 3)).map(
            lambda two: {"type": "array", "items": two[0], **two[1]}
        ),
        st.lists(children, min_size=1, max_size=3).map(lambda s: {"type": "array", "prefixItems": s}),
        st.lists(children, min_size=1, max_size=3).map(lambda s: {"anyOf": s}),
        children.map(lambda s: {"type": "object", "additionalProperties": s}),
        children.map(lambda s: {"allOf": [s], "title": "t"}),
    )  # fmt: skip


leaves = st.one_of(
    typed("integer", bounds("minimum", "maximum")),
    typed("integer", bounds("exclusiveMinimum", "exclusiveMaximum")),
    typed("string", counted("minLength", "maxLength", 4)),
    st.sampled_from(["string", "number", "boolean", "null", "integer"]).map(lambda k: {"type": k}),
    st.just({"type": "number", "minimum": 0}),
    st.just({"type": ["string", "null", "integer"]}),
    st.lists(VALUES, min_size=1, max_size=4).map(lambda found: {"enum": found}),
    VALUES.map(lambda found: {"const": found}),
    st.sampled_from(sorted(FORMATS)).map(lambda form: {"type": "string", "format": form}),
)
schemas = st.recursive(leaves, composed, max_leaves=6)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(schemas, st.integers(0, 999))
def test_law_what_the_grammar_lets_through_the_schema_accepts(schema, seed):
    try:
        found = schema_grammar(schema)
    except InvalidRequest as error:
        if "cannot be held" in str(error):  # two exclusive bounds with nothing between
            return
        raise
    source = random.Random(seed)
    for _ in range(8):
        text = said(found, source).decode()
        assert accepts(schema, json.loads(text), schema), text


@settings(deadline=None)
@given(st.integers(0, 999))
def test_law_any_object_is_an_object(seed):
    text = said(schema_grammar({"type": "object"}), random.Random(seed)).decode()
    assert isinstance(json.loads(text), dict)


def passes(schema, text):
    return has(schema_grammar(schema), text)


PERSON = {
    "type": "object",
    "title": "Person",
    "properties": {
        "name": {"type": "string", "description": "in full", "maxLength": 20},
        "age": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 130}, {"type": "null"}]},
        "mail": {"type": "string", "format": "email"},
        "born": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"enum": ["new", "old"]}, "maxItems": 2},
        "home": {"$ref": "#/$defs/Home"},
        "friends": {"type": "array", "items": {"$ref": "#"}},
        "scores": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"Home": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
ANNA = {
    "name": "Anna Müller",
    "age": 34,
    "mail": "anna.mueller@example.org",
    "born": "1992-02-29",
    "tags": ["old"],
    "home": {"city": 'a "city"\n'},
    "friends": [{"name": "Bo", "age": None}, {"name": "", "age": 0, "home": {}}],
    "scores": {"x y": 1.25e-3, "z": -7},
}


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"indent": 4}, {"separators": (",", ":")}])
@pytest.mark.parametrize("plainly", [True, False])
def test_what_programs_write_passes_in_every_usual_layout(layout, plainly):
    assert passes(PERSON, json.dumps(ANNA, ensure_ascii=plainly, **layout))
    assert passes({"type": "object"}, json.dumps(ANNA, ensure_ascii=plainly, **layout))
    assert passes({}, json.dumps([ANNA, 1, "x", None], ensure_ascii=plainly, **layout))


@pytest.mark.parametrize(
    "changed",
    [
        {"age": 131}, {"age": "34"}, {"age": 1.5}, {"name": "x" * 21}, {"mail": "no one"},
        {"born": "1991-02-29"}, {"born": "1992-13-01"}, {"tags": ["old", "new", "old"]},
        {"tags": ["odd"]}, {"home": None}, {"friends": [{"name": "Bo"}]}, {"scores": {"x": "1"}},
        {"more": 1},
    ],
)  # fmt: skip
def test_what_the_schema_forbids_does_not_pass(changed):
    assert not passes(PERSON, json.dumps({**ANNA, **changed}))


OPEN = [
    {},
    {"additionalProperties": True},
    {"additionalProperties": {"type": "string"}},
    {"patternProperties": {"^_z": {"type": "string"}}},
    {"minProperties": 1},
    {"allOf": [{"properties": {"_y": {"type": "string"}}}]},
    {"anyOf": [{"required": ["_y"]}, {"properties": {"_y": False}}]},
]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4),
    st.sampled_from(OPEN),
    st.data(),
)
def test_law_no_spelling_of_a_listed_name_evades_its_schema(name, others, data):
    spelled = "".join(
        json.dumps(sign)[1:-1] if plainly else "".join(f"\\u{n:04x}" for n in halves(sign))
        for sign, plainly in zip(name, data.draw(st.lists(st.booleans(), min_size=4)), strict=False)
    )
    schema = {"type": "object", "properties": {name: {"type": "integer"}}, **others}
    within = {"type": "array", "items": schema}
    for value in ('"x"', "[]", "null"):
        assert not has(schema_grammar(schema), f'{{"{spelled}": {value}}}')
        assert not has(schema_grammar(within), f'[{{"{spelled}": {value}}}]')
    assert has(schema_grammar(schema), f"{json.dumps({name: 1}, ensure_ascii=False)}") or (
        "\x7f" in name
    )


def halves(sign):
    """Its units in UTF-16."""
    code = ord(sign)
    if code < 0x10000:
        return [code]
    return [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)]


@pytest.mark.parametrize(
    "others",
    [
        {"oneOf": [{"$ref": "#/$defs/it"}], "$defs": {"it": {"required": ["b"]}}},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"allOf": [{"required": ["b"]}]},
        {"required": ["b"]},
    ],
)
def test_unlisted_names_may_be_asked_for(others):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, **others}
    assert has(schema_grammar(schema), '{"b": 1}')
    assert not has(schema_grammar(schema), '{"\\u0061": "x", "b": 1}')


def test_values_may_have_escapes_where_names_are_of_one_kind():
    schema = {"properties": {"a": {"type": "string"}}, "type": "object"}
    for text in (
        '{"a": "\\u00e9"}',
        '{"a": "\\ud83d\\ude00", "b": "\\u00e9"}',
        '{"b": {"\\u00e9": 1}}',
    ):
        assert has(schema_grammar(schema), text)


@pytest.mark.parametrize("name", ["Step 0", "Step 0,", "Step 1", "Step 0:", "0 of #", "Step/items"])
def test_a_definition_may_have_any_name(name):
    """Rules of the properties of "Step" were taken for a definition "Step 0"."""
    step = {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}
    schema = {
        "$defs": {"Step": step, name: {"enum": ["x"]}},
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/Step"},
            "b": {"$ref": "#/$defs/" + name.replace("/", "~1")},
        },
        "required": ["a", "b"],
    }
    turned = {**schema, "properties": dict(reversed(schema["properties"].items()))}
    assert passes(schema, '{"a": {"k": 1}, "b": "x"}')
    assert passes(turned, '{"b": "x", "a": {"k": 1}}')
    assert not passes(schema, '{"a": "x", "b": "x"}')


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (False, "the schema is false"),
        ({"type": "string", "pattern": "(?!a)"}, "'pattern' at #: '(?!' in the pattern"),
        ({"type": "string", "pattern": 3}, "'pattern' at # is 3"),
        ({"properties": {"a": {"uniqueItems": True}}}, "'uniqueItems' at #/properties/a"),
        ({"type": "string", "format": "regex"}, "'format' at # 'regex' is not supported"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "at # cannot be held"),
        ({"type": "integer", "minimum": "5"}, "'minimum' at # is '5'"),
        ({"type": "text"}, "'type' at # is 'text'; it may be object"),
        ({"enum": []}, "'enum' at # cannot be held"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"enum": [1], "type": "string"}}}, "at #/properties/a cannot be held"),
        ({"$ref": "#/$defs/x"}, "points to nothing"),
        ({"$ref": "http://example.org/s"}, "must be # or begin with #/"),
        ({"$defs": {"A": {"$anchor": "item"}}, "items": {"$ref": "#item"}}, "'#item' at #/items must be"),
        ({"items": {"$dynamicRef": "#"}}, "'$dynamicRef' at #/items is not supported"),
        ({"items": {"$recursiveRef": "#"}}, "'$recursiveRef' at #/items is not supported"),
        ({"items": {"$id": "x", "items": {"$ref": "#"}}}, "'$id' at #/items is not supported"),
        ({"anyOf": [{}], "unevaluatedProperties": False}, "'unevaluatedProperties' at #"),
        ({"type": "array", "items": False, "minItems": 2}, "at # cannot be held"),
        ({"items": {"type": "integer", "minimum": 10**19}}, "'minimum' at #/items leaves only numbers"),
        ({"const": 2**53 + 1}, "that cannot be held exactly"),
        ({"$ref": "#"}, "never ends"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"}, "never ends"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "at # cannot be held"),
        ({"not": {"format": "date"}}, "'not' at # is not supported"),
        ({"const": float("inf")}, "cannot be written as JSON"),
        ({"const": "\ud800"}, "cannot be written as JSON"),
        ({"description": "x" * LARGEST}, f"at most {LARGEST}"),
        ([], "must be an object"),
    ],
)  # fmt: skip
def test_unsupported_schemas_are_refused_with_its_place(schema, words):
    with pytest.raises(InvalidRequest) as caught:
        schema_grammar(schema)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


SHAPES = [
    {"type": "object", "properties": {"kind": {"const": kind}, size: {"type": "integer"}}, "required": ["kind", size]}
    for kind, size in (("circle", "radius"), ("square", "side"))
]  # fmt: skip
ONLY_1 = {"enum": [1]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"$defs": {"a b~/%": ONLY_1}, "$ref": "#/$defs/a%20b~0~1%25"}, "1", "2"),  # as in an address
        ({"$id": "x", "items": {"$id": "y", "enum": [{"$id": "z"}]}}, '[{"$id": "z"}]', "[1]"),  # unused ids
        ({"type": "object", "unevaluatedProperties": False}, "{}", '{"a": 1}'),
        ({"type": "object", "unevaluatedProperties": ONLY_1}, '{"a": 1}', '{"a": 2}'),
        ({"additionalProperties": {"enum": [2]}, "unevaluatedProperties": False}, '{"a": 2}', '{"a": 1}'),
        ({"properties": {"a": ONLY_1}, "unevaluatedProperties": False}, '{"a": 1}', '{"b": 1}'),
        ({"oneOf": SHAPES}, '{"kind": "circle", "radius": 2}', '{"kind": "circle", "side": 2}'),
    ],
)  # fmt: skip
def test_words_of_schemas(schema, good, bad):
    assert passes(schema, good)
    assert not passes(schema, bad)


@pytest.mark.parametrize(
    ("words", "good", "bad"),
    [
        ({"items": {"enum": ["red", "green", "blue"]}}, '["blue", "red"]', '["red", "blue", "red"]'),
        ({"items": {"$ref": "#/$defs/e"}, "$defs": {"e": {"enum": [1, 2, 3, 4]}}}, "[4, 1, 3, 2]", "[4, 4]"),
        ({"items": {"type": "boolean"}}, "[false, true]", "[true, true]"),
        ({"items": {"enum": ["a", "b", "c"]}, "minItems": 2}, '["a", "c"]', '["a"]'),
        ({"items": {"enum": ["a", "b", "c"]}, "maxItems": 2}, '["c"]', '["a", "b", "c"]'),
        ({"items": {"const": None}, "type": "array"}, "[null]", "[null, null]"),
        ({"items": {"enum": [[1], [2]]}}, "[]", "[[1], [1]]"),
        ({"items": {"enum": ["a", "a"]}, "type": ["array", "string"]}, '"a"', '["a", "a"]'),
    ],
)  # fmt: skip
def test_items_of_few_listed_values_may_have_to_differ(words, good, bad):
    schema = {**words, "uniqueItems": True}
    assert passes(schema, good)
    assert not passes(schema, bad)
    assert passes({**words, "uniqueItems": False}, good)


def deep(levels):
    schema = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_a_schema_may_be_so_deep_and_no_deeper():
    assert passes(deep(DEEPEST), "[" * DEEPEST + "]" * DEEPEST)
    with pytest.raises(InvalidRequest, match=f"more than {DEEPEST} levels"):
        schema_grammar(deep(DEEPEST + 1))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["object", "array", "string", "#", "#/type", "date"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf",
            "$ref", "minimum", "maximum", "minItems", "maxItems", "minLength", "format",
            "prefixItems", "additionalProperties", "a",
        ]), inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(junk)
def test_law_whatever_is_sent_as_a_schema_gets_a_grammar_or_one_sentence(schema):
    sentence = ""
    try:
        found = schema_grammar(schema)
    except InvalidRequest as error:
        found, sentence = None, str(error)
    assert (found is not None) != bool(sentence)
    assert "\n" not in sentence


edges = st.integers(-(10**6), 10**6) | st.integers(-99, 99) | st.none()


@settings(deadline=None)
@given(edges, edges, st.lists(st.integers(-2 * 10**6, 2 * 10**6), max_size=20))
def test_law_a_number_passes_exactly_within_its_bounds(one, other, asked):
    low, high = (one, other) if None in (one, other) else (min(one, other), max(one, other))
    bounds = {"minimum": low, "maximum": high}
    numbers = schema_grammar(
        {"type": "integer", **{w: v for w, v in bounds.items() if v is not None}}
    )
    near = [n + d for n in (low, high, 0) if n is not None for d in (-1, 0, 1)]
    for number in (*asked, *near):
        within = (low is None or low <= number) and (high is None or number <= high)
        assert has(numbers, str(number)) == within


@pytest.mark.parametrize("least", [-(2**63), -(2**53) + 1, -(2**70)])
@pytest.mark.parametrize("most", [2**63 - 1, 2**53 - 1, None])
def test_the_bounds_of_whole_numbers_in_other_languages(least, most):
    bounds = {"minimum": least} | ({} if most is None else {"maximum": most})
    numbers = schema_grammar({"type": "integer", **bounds})
    assert all(has(numbers, str(n)) for n in (0, -5, 2**53 - 1, -(2**53) + 1))


NULL = {"type": "object", "properties": None, "required": None, "additionalProperties": None}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (NULL, '{"a": 1}', "1"),
        ({"type": "string", "enum": None, "maxLength": 2, "pattern": None, "format": None}, '"ab"', '"abc"'),
        ({"type": None, "enum": ["a", None], "minLength": None}, "null", '"b"'),
        ({"properties": {"a": {"const": None, "title": None}}, "type": "object"}, '{"a": null}', '{"a": 1}'),
    ],
)  # fmt: skip
def test_words_that_are_null_say_nothing(schema, good, bad):
    """Programs write null for a word that they do not set."""
    assert passes(schema, good)
    assert not passes(schema, bad)
