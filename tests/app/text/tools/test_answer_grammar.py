"""What answers with tools are held to: every text that the grammar has is a call that fits, or text."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from app.request import Tool, ToolUse
from app.text.chat_text import ChatText
from app.text.formats.json_schema import MOST_DIGITS
from app.text.tools.answer_grammar import held
from app.text.tools.call_format import DEFAULT_FORM, CallForm
from app.text.tools.call_parser import ToolCallParser
from app.text.tools.values import other_kinds
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar
from engine.grammar.vocabulary import Vocabulary
from engine.speculation.grammar_mask import Compiled, GrammarMatcher
from engine.speculation.tree import single
from tests.app.assisted import POCKET
from tests.app.text.formats.walks import has, said
from tests.app.text.parsing import calls_of
from tests.app.text.tools.templates import CODER_FORM, GLM_FORM

ADD = Tool(
    "add",
    "Adds.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "maximum": 9}},
        "required": ["a", "b"],
    },
)
LOOK = Tool("look_up", "Looks up.", {"type": "object", "properties": {"what": {"$ref": "#/$defs/w"}},
                                     "$defs": {"w": {"enum": ["x", "y"]}}, "required": ["what"]})  # fmt: skip
BARE = CallForm('{"name": "', '", "parameters": ', "}")
FORMS = [DEFAULT_FORM, BARE, CallForm("[TOOL_CALLS]", "[ARGS]", "", ""), CODER_FORM, GLM_FORM]


def grammar(form: CallForm = DEFAULT_FORM, *tools: Tool, **wanted: Any) -> Grammar:
    """Of an answer that has to call one of the tools."""
    found = held(form, ToolUse(tools or (ADD, LOOK), **{"must_call": True, **wanted}))
    assert found is not None
    return found


def odd(schema: dict[str, Any], *, strict: bool = False) -> Tool:
    """A tool with these arguments."""
    return Tool("odd", "", schema, strict=strict)


def call(arguments: str, name: str = "odd") -> str:
    """A call as the usual form has it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("digits", ["1", "-1", "2"])
def test_a_number_of_a_required_call_ends(form: CallForm, digits: str) -> None:
    held_to = Compiled(grammar(form), Vocabulary([b"", *(bytes([byte]) for byte in range(1, 255))]))
    matcher = GrammarMatcher(held_to, frozenset({0}), 1)
    number = digits + "0" * (MOST_DIGITS - 1)
    ids = [1, *f'{form.before.lstrip()}add{form.between}{{"a": {number}'.encode()]
    assert matcher.advance(ids)
    row = torch.as_tensor(matcher.mask(single(ids[-1]), torch.zeros(1, 255), ids, greedy=False))[0]
    assert row[ord("0")] == -torch.inf
    assert row[ord(",")] == 0


def calls_in(form: CallForm, text: str) -> tuple[str, list[tuple[str, dict]]]:
    reader = ToolCallParser(form, [ADD, LOOK])
    parsed = reader.feed(text)
    calls = [(name, json.loads(arguments)) for name, arguments in calls_of(parsed.calls)]
    return parsed.text + reader.end().text, calls


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(12))
def test_law_required_calls_fit(form: CallForm, seed: int) -> None:
    text = said(grammar(form), random.Random(seed), longest=600).decode()
    rest, calls = calls_in(form, text.lstrip(" "))
    assert rest == ""
    assert 0 < len(calls) <= (16 if form.separator is not None else 1)
    for name, arguments in calls:
        if name == "add":
            assert [*arguments] == ["a", "b"]
            assert all(type(value) is int for value in arguments.values())
            assert arguments["b"] <= 9
        else:
            assert arguments["what"] in "xy"


class TestWhatMayCome:
    CALL = call('{"a": 1, "b": 2}', "add")
    LOOKED = call('{"what": "x"}', "look_up")

    def test_where_a_call_has_to_come(self) -> None:
        two = f"{self.CALL}\n{self.LOOKED}"
        assert has(grammar(), self.CALL)
        assert has(grammar(), two)
        for text in ("Hello", self.CALL + "!", self.CALL.replace("2", "10")):
            assert not has(grammar(), text)
        assert not has(grammar(parallel=False), two)
        named = grammar(only="look_up", parallel=False)
        assert has(named, self.LOOKED)
        for text in (self.CALL, f"{self.LOOKED}\n{self.LOOKED}"):
            assert not has(named, text)

    def test_where_one_may_come_text_is_free_up_to_its_opening(self) -> None:
        free = grammar(must_call=False)
        for text in (
            "",
            "Hello <tool_cal>",
            "<<tool_<tool",
            f"I add.\n{self.CALL}",
            "é",
            self.CALL,
        ):
            assert has(free, text), text
        for text in ("<tool_call>", "x <tool_call> y", f"<{self.CALL} and more"):
            assert not has(free, text), text
        assert has(free, f"<{self.CALL}")  # a tag after its own beginning is one, too

    def test_where_nothing_tells_a_call_text_is_free(self) -> None:
        assert held(BARE, ToolUse((ADD,))) is None


ODD = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "format": "uri-reference", "pattern": "^https"},
        "pattern": {"type": "array", "items": {"type": "number"}, "uniqueItems": True},
        "one": {"oneOf": [{"type": "string"}, {"enum": ["a"]}]},
    },
    "required": ["url", "pattern", "one"],
    "not": {"format": "date"},
}


class TestSchemasThatCannotBeHeld:
    FITTING = call('{"url": "https:u", "pattern": [2.5, 2.5], "one": "a"}')

    def test_are_held_as_far_as_they_can_be(self) -> None:
        steps = grammar(DEFAULT_FORM, odd(ODD))
        assert has(steps, self.FITTING)
        assert not has(steps, self.FITTING.replace("2.5", '"x"'))
        assert not has(steps, self.FITTING.replace('"url": "https:u", ', ""))
        assert not has(steps, self.FITTING.replace("https:", ""))
        assert {word for word in steps.freed if "oneOf" not in word} == {
            "not at # of odd", "format at #/properties/url of odd",
            "uniqueItems at #/properties/pattern of odd",
        }  # fmt: skip

    def test_what_goes_for_one_tool_stays_for_the_others(self) -> None:
        steps = grammar(DEFAULT_FORM, odd(ODD), ADD)
        assert has(steps, call('{"a": 1, "b": 9}', "add"))
        assert not has(steps, call('{"a": 1, "b": 10}', "add"))
        assert not any("add" in word for word in steps.freed)

    @pytest.mark.parametrize(
        ("text", "freed", "good", "bad"),
        [
            ({"pattern": "^a", "format": "date"}, ["pattern"], "2026-11-26", "abc"),
            ({"pattern": "^2", "format": "date"}, [], "2026-11-26", "1999-11-26"),
            ({"pattern": "^(?!a)", "maxLength": 3}, ["pattern"], "xyz", "abcd"),
            ({"pattern": "^(ab|c)d?$", "maxLength": 1}, [], "c", "cd"),
            ({"format": "date", "minLength": 11}, ["format"], "12345678901", "ab"),
            ({"format": "topic", "minLength": 3}, [], "xyz", "ab"),
            ({"enum": ["a", "bb"], "minLength": 2}, [], "bb", "a"),
        ],
    )
    def test_texts_keep_what_fits_together(
        self, text: dict[str, Any], freed: list[str], good: str, bad: str
    ) -> None:
        schema = {"properties": {"a": {"type": "string", **text}}, "required": ["a"]}
        steps = grammar(DEFAULT_FORM, odd(schema))
        assert [word.partition(" at #/properties/a of odd")[0] for word in steps.freed] == freed
        assert has(steps, call(f'{{"a": "{good}"}}'))
        assert not has(steps, call(f'{{"a": "{bad}"}}'))

    def test_are_refused_where_they_are_strict(self) -> None:
        with pytest.raises(
            InvalidRequest, match="at #/properties/url 'uri-reference' is not supported"
        ):
            grammar(DEFAULT_FORM, odd(ODD, strict=True))

    @pytest.mark.parametrize("form", [DEFAULT_FORM, CODER_FORM])
    def test_extended_schemas_have_all_properties(self, form: CallForm) -> None:
        base = {"properties": {"id": {"type": "integer"}}, "required": ["id"]}
        more = {"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [base]}
        inside = (
            '"arguments": {"a": "x", "id": 1}}',
            "<parameter=id>\n1\n</parameter>\n</function>",
        )
        begin = '{"name": "odd", ' if form == DEFAULT_FORM else "<function=odd>\n"
        text = f"<tool_call>\n{begin}{inside[form != DEFAULT_FORM]}\n</tool_call>"
        assert has(grammar(form, odd(more)), text)

    def test_that_are_made_of_others_alone_give_objects(self) -> None:
        made = {"allOf": [{"properties": {"id": {}}}, {"properties": {"a": {}}}]}
        steps = grammar(DEFAULT_FORM, odd(made))
        assert has(steps, call('{"id": [1]}'))
        assert not has(steps, call("3"))

    @pytest.mark.parametrize("kind", ["object", ["null", "object"], "dict"])
    def test_of_a_kind_that_is_none_give_objects(self, kind: object) -> None:
        schema = {"type": kind, "properties": {"a": {"type": "integer"}}}
        assert other_kinds(odd(schema)) == []
        steps = grammar(DEFAULT_FORM, odd(schema))
        assert has(steps, call('{"a": 1}'))
        assert not has(steps, call("null"))

    def test_a_hopeless_part_gives_any_value(self) -> None:
        hopeless = {"type": "object", "properties": {"a": {"$ref": "elsewhere.json"}}}
        steps = grammar(DEFAULT_FORM, odd(hopeless))
        assert has(steps, call('{"a": [1]}'))
        assert steps.freed == ("$ref at #/properties/a of odd",)

    def test_far_too_many_give_any_object_to_each(self) -> None:
        many = {
            "type": "object",
            "properties": {f"p{n}": {"enum": [*range(400)]} for n in range(400)},
        }
        tools = [Tool(f"t{n}", "", many) for n in range(20)]
        steps = grammar(DEFAULT_FORM, *tools)
        assert has(steps, call('{"q": [1]}', "t19"))
        assert any("of t19" in word for word in steps.freed)
        with pytest.raises(InvalidRequest, match="cannot be held"):
            grammar(DEFAULT_FORM, Tool("s", "", many, strict=True))


NOTHING: list[dict[str, Any]] = [
    {},
    {"type": "object", "properties": {}},
    {"properties": {}, "required": [], "title": "none"},
]
ANYTHING: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "object", "properties": {}, "additionalProperties": True},
    {"type": "object", "properties": {}, "patternProperties": {"^": True}},
]


@pytest.mark.parametrize("form", FORMS[:3])
def test_a_tool_without_parameters_takes_none(form: CallForm) -> None:
    """Small models make some up until no tokens are left."""
    for schema, takes in [*((one, False) for one in NOTHING), *((one, True) for one in ANYTHING)]:
        steps = grammar(form, Tool("odd", "", schema))
        for arguments in ("{}", "{ }", '{"a": 1}'):
            text = f"{form.before}odd{form.between}{arguments}{form.after}"
            assert has(steps, text) == (takes or "a" not in arguments)


def test_the_same_tools_are_held_to_the_same_grammar_and_others_to_theirs() -> None:
    text = ChatText.load(POCKET)
    first = text.held(ToolUse((ADD,)))
    assert text.held(ToolUse((replace(ADD),))) is first
    others = [text.held(ToolUse((replace(ADD, parameters=LOOK.parameters),)))]
    others += [text.held(ToolUse((replace(ADD, name=f"t{n}"),))) for n in range(8)]
    assert len({first, *others}) == 10
    assert text.held(ToolUse((ADD,))) == first


MIXED = Tool(
    "text",  # which names a rule of free text, too
    "",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 2},
            "mode": {"enum": ["r", "w", 1]},
            "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
            "depth": {"type": "integer", "maximum": 9},
            "tag": {"$ref": "#/$defs/tag"},
            "note": {"type": ["string", "null"]},
            "odd": {"type": "object", "not": {"format": "x"}},
        },
        "required": ["path", "mode"],
        "$defs": {"tag": {"const": "x"}},
    },
)


def paired(inside: str) -> str:
    parts = [part.partition("=") for part in inside.split("|") if part]
    pairs = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, _, value in parts)
    return f"<tool_call>\n<function=text>\n{pairs}</function>\n</tool_call>"


class TestCallsInPairs:
    @pytest.mark.parametrize(
        "inside",
        [
            "path=any text\n<b> é|mode=r",
            "path=|mode=1",
            'path=a|mode=w|lines=[1, 2]|depth=9|tag=x|note=null|odd={"a": 1}',
            "path=a|mode=w|note=a = b",
        ],
    )
    def test_what_fits(self, inside: str) -> None:
        assert has(grammar(CODER_FORM, MIXED), paired(inside))

    @pytest.mark.parametrize(
        "inside",
        [
            "",  # what is required is missing
            "mode=r|path=a",  # another order
            "path=a|mode=x",
            "path=a|mode=r|lines=[1, 2, 3]",
            "path=a|mode=r|depth=10",
            "path=a|mode=r|depth=a",
            "path=a|mode=r|tag=y",
            "path=a|mode=r|path=b",
            "path=a|mode=r|other=b",
            "path=a|mode=r|odd=[]",
        ],
    )
    def test_what_does_not(self, inside: str) -> None:
        assert not has(grammar(CODER_FORM, MIXED), paired(inside))

    @pytest.mark.parametrize("schema", NOTHING)
    def test_a_tool_without_parameters_takes_none(self, schema: dict[str, Any]) -> None:
        steps = grammar(CODER_FORM, Tool("text", "", schema))
        assert has(steps, paired(""))
        assert not has(steps, paired("a=1"))

    @pytest.mark.parametrize("schema", ANYTHING)
    def test_one_that_does_not_list_them_takes_any(self, schema: dict[str, Any]) -> None:
        steps = grammar(CODER_FORM, Tool("text", "", schema))
        assert has(steps, paired(""))
        assert has(steps, paired("a=1|b=x\ny"))
        assert not has(steps, paired("a=1") + "!")

    def test_strict_ones_are_held_or_refused(self) -> None:
        steps = grammar(CODER_FORM, _strict(MIXED, "odd", "path"))
        assert has(steps, paired("mode=r|depth=2"))
        assert not has(steps, paired("mode=r|depth=20"))
        with pytest.raises(InvalidRequest, match="'minLength' at #/properties/path of text"):
            grammar(CODER_FORM, _strict(MIXED, "odd"))  # only quotes could hold it
        with pytest.raises(InvalidRequest, match="'not' at #/properties/odd is not supported"):
            grammar(CODER_FORM, _strict(MIXED))

    def test_text_is_free_up_to_a_call(self) -> None:
        free = grammar(CODER_FORM, MIXED, must_call=False)
        assert has(free, f"So: <tool_cal {paired('path=a|mode=r')}")
        assert not has(free, f"So: {paired('path=a')}")


def _strict(tool: Tool, *without: str) -> Tool:
    properties = {k: v for k, v in tool.parameters["properties"].items() if k not in without}
    required = [name for name in tool.parameters["required"] if name not in without]
    parameters = {**tool.parameters, "properties": properties, "required": required}
    return replace(tool, parameters=parameters, strict=True)
