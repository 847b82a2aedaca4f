"""What answers with tools are held to: every text that the grammar has is a call that fits, or text."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from app.request import Tool, ToolUse
from app.text.formats.relax_schema import relaxed
from app.text.tools.answer_grammar import Answers, held
from app.text.tools.call_format import TOLD, CallForm
from app.text.tools.call_parser import ToolCallParser
from app.text.tools.values import other_kinds
from engine.errors import InvalidRequest
from engine.grammar.states import DEAD, States
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
FORMS = [TOLD, BARE, CallForm("[TOOL_CALLS]", "[ARGS]", "", ""), CODER_FORM, GLM_FORM]


def states(form: CallForm, **wanted: Any) -> States:
    found = held(form, ToolUse((ADD, LOOK), **{"must_call": True, **wanted}))
    assert found is not None
    return States(found)


def walked(steps: States, chance: random.Random, longest: int = 600) -> str:
    """A random text of the grammar, which ends as soon as it may once it is long."""
    state, text = steps.start, bytearray()
    while not (steps.accepts(state) and (len(text) > longest or chance.random() < 0.3)):
        row = steps.steps([state])[state]
        ahead = [byte for byte in range(256) if row[byte] != DEAD]
        if not ahead:
            break
        quotes = [byte for byte in ahead if byte in b'"}]0' or byte == ord("9")]
        text.append(chance.choice(quotes if quotes and chance.random() < 0.4 else ahead))
        state = int(row[text[-1]])
    assert steps.accepts(state)
    return text.decode()


def calls_in(form: CallForm, text: str) -> tuple[str, list[tuple[str, dict]]]:
    reader = ToolCallParser(form, [ADD, LOOK])
    heard = reader.feed(text)
    found: dict[int, list[str]] = {}
    for part in heard.calls:
        found.setdefault(part.index, [part.name, ""])[1] += part.arguments
    return heard.said + reader.end(), [(name, json.loads(told)) for name, told in found.values()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(12))
def test_every_answer_that_has_to_call_is_calls_that_fit(form: CallForm, seed: int) -> None:
    said, calls = calls_in(form, walked(states(form), random.Random(seed)).lstrip(" "))
    assert said == ""
    assert 0 < len(calls) <= (16 if form.separator is not None else 1)
    for name, told in calls:
        if name == "add":
            assert [*told] == ["a", "b"]
            assert all(type(value) is int for value in told.values())
            assert told["b"] <= 9
        else:
            assert told["what"] in "xy"


def ends(steps: States, text: str) -> bool:
    state = steps.walk(steps.start, text.encode())
    return state != DEAD and steps.accepts(state)


class TestWhatMayCome:
    CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    LOOKED = '<tool_call>\n{"name": "look_up", "arguments": {"what": "x"}}\n</tool_call>'

    def test_where_a_call_has_to_come(self) -> None:
        must = states(TOLD)
        assert ends(must, self.CALL)
        assert ends(must, f"{self.CALL}\n{self.LOOKED}")
        assert not ends(must, "Hello")
        assert not ends(must, self.CALL + "!")
        assert not ends(must, self.CALL.replace("2", "10"))

    def test_one_at_a_time(self) -> None:
        assert not ends(states(TOLD, parallel=False), f"{self.CALL}\n{self.LOOKED}")

    def test_the_named_one(self) -> None:
        named = states(TOLD, only="look_up", parallel=False)
        assert ends(named, self.LOOKED)
        assert not ends(named, self.CALL)
        assert not ends(named, f"{self.LOOKED}\n{self.LOOKED}")

    def test_where_one_may_come_text_is_free_up_to_its_opening(self) -> None:
        free = states(TOLD, must_call=False)
        for text in (
            "",
            "Hello <tool_cal>",
            "<<tool_<tool",
            f"I add.\n{self.CALL}",
            "é",
            self.CALL,
        ):
            assert ends(free, text), text
        for text in ("<tool_call>", "x <tool_call> y", f"<{self.CALL} and more"):
            assert not ends(free, text), text
        assert ends(free, f"<{self.CALL}")  # a tag behind its own beginning is one, too

    def test_where_nothing_tells_a_call_text_is_free(self) -> None:
        assert held(BARE, ToolUse((ADD,))) is None


ODD = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "format": "uri", "pattern": "^https"},
        "pattern": {"type": "number", "minimum": 0.5, "multipleOf": 0.5},
        "one": {"oneOf": [{"type": "string"}, {"enum": ["a"]}]},
    },
    "required": ["url", "pattern", "one"],
    "not": {"required": ["x"]},
}


class TestSchemasThatCannotBeHeld:
    FITTING = '<tool_call>\n{"name": "odd", "arguments": {"url": "https:u", "pattern": 2.5, "one": "a"}}\n</tool_call>'

    def test_are_held_as_far_as_they_can_be(self) -> None:
        use = ToolUse((Tool("odd", "", ODD),), must_call=True)
        steps = States(held(TOLD, use))
        assert ends(steps, self.FITTING)
        assert not ends(steps, self.FITTING.replace("2.5", '"x"'))
        assert not ends(steps, self.FITTING.replace('"url": "https:u", ', ""))
        assert not ends(steps, self.FITTING.replace("https:", ""))

    @pytest.mark.parametrize(
        ("text", "kept", "good", "bad"),
        [
            ({"pattern": "^a", "format": "date"}, ["format"], "2026-11-26", "abc"),
            ({"pattern": "^(?=a)", "maxLength": 3}, ["maxLength"], "xyz", "abcd"),
            ({"pattern": "^(ab|c)d?$", "maxLength": 1}, ["maxLength"], "x", "cd"),
            ({"pattern": "^a+$", "maxLength": 2}, ["pattern", "maxLength"], "aa", "aaa"),
            ({"format": "date", "minLength": 3}, ["minLength"], "xyz", "ab"),
            ({"enum": ["a", "b"], "minLength": 1}, ["enum"], "b", "c"),
        ],
    )
    def test_words_about_a_text_are_held_as_far_as_they_go_together(
        self, text: dict[str, Any], kept: list[str], good: str, bad: str
    ) -> None:
        schema = {"properties": {"a": {"type": "string", **text}}, "required": ["a"]}
        inner = relaxed(schema)["properties"]["a"]
        assert list(inner) == ["type", *kept]
        steps = States(held(TOLD, ToolUse((Tool("odd", "", schema),), must_call=True)))
        call = '<tool_call>\n{"name": "odd", "arguments": {"a": "%s"}}\n</tool_call>'
        assert ends(steps, call % good)
        assert not ends(steps, call % bad)

    def test_are_refused_where_they_are_strict(self) -> None:
        use = ToolUse((Tool("odd", "", ODD, strict=True),), must_call=True)
        with pytest.raises(InvalidRequest, match="'not' at # is not supported"):
            held(TOLD, use)

    @pytest.mark.parametrize("form", [TOLD, CODER_FORM])
    def test_that_extend_another_one_let_its_properties_in(self, form: CallForm) -> None:
        base = {"properties": {"id": {"type": "integer"}}, "required": ["id"]}
        more = {"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [base]}
        inside = (
            '"arguments": {"id": 1, "a": "x"}}',
            "<parameter=id>\n1\n</parameter>\n</function>",
        )
        begin = '{"name": "odd", ' if form == TOLD else "<function=odd>\n"
        text = f"<tool_call>\n{begin}{inside[form != TOLD]}\n</tool_call>"
        steps = States(held(form, ToolUse((Tool("odd", "", more),), must_call=True)))
        assert ends(steps, text)

    def test_that_are_made_of_others_alone_give_objects(self) -> None:
        made = {"allOf": [{"properties": {"id": {}}}, {"properties": {"a": {}}}]}
        steps = States(held(TOLD, ToolUse((Tool("odd", "", made),), must_call=True)))
        assert ends(steps, '<tool_call>\n{"name": "odd", "arguments": {"id": [1]}}\n</tool_call>')
        assert not ends(steps, '<tool_call>\n{"name": "odd", "arguments": 3}\n</tool_call>')

    @pytest.mark.parametrize("kind", ["object", ["null", "object"], "dict"])
    def test_of_a_kind_that_is_none_give_objects(self, kind: object) -> None:
        told = {"type": kind, "properties": {"a": {"type": "integer"}}}
        assert other_kinds(Tool("odd", "", told)) == []
        steps = States(held(TOLD, ToolUse((Tool("odd", "", told),), must_call=True)))
        assert ends(steps, '<tool_call>\n{"name": "odd", "arguments": {"a": 1}}\n</tool_call>')
        assert not ends(steps, '<tool_call>\n{"name": "odd", "arguments": null}\n</tool_call>')

    def test_hopeless_ones_give_any_object(self) -> None:
        hopeless = Tool(
            "odd", "", {"type": "object", "properties": {"a": {"$ref": "elsewhere.json"}}}
        )
        steps = States(held(TOLD, ToolUse((hopeless,), must_call=True)))
        assert ends(steps, '<tool_call>\n{"name": "odd", "arguments": {"q": [1]}}\n</tool_call>')

    def test_far_too_many_give_any_object_to_each(self) -> None:
        many = {
            "type": "object",
            "properties": {f"p{n}": {"enum": [*range(40)]} for n in range(40)},
        }
        tools = tuple(Tool(f"t{n}", "", many) for n in range(100))
        steps = States(held(TOLD, ToolUse(tools, must_call=True)))
        assert ends(steps, '<tool_call>\n{"name": "t99", "arguments": {"q": [1]}}\n</tool_call>')
        strict = (*tools, Tool("s", "", many, strict=True))
        with pytest.raises(InvalidRequest, match="more than 20000 parts"):
            held(TOLD, ToolUse(strict, must_call=True))


def test_the_same_tools_are_held_to_the_same_grammar_and_others_to_theirs() -> None:
    answers = Answers(TOLD)
    first = answers.held(ToolUse((ADD,)))
    assert answers.held(ToolUse((replace(ADD),))) is first
    others = [answers.held(ToolUse((replace(ADD, name=f"t{n}"),))) for n in range(9)]
    assert len({first, *others}) == 10
    assert answers.held(ToolUse((ADD,))) == first


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
            "odd": {"type": "object", "not": {"required": ["x"]}},
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
        steps = States(held(CODER_FORM, ToolUse((MIXED,), must_call=True)))
        assert ends(steps, paired(inside))

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
        steps = States(held(CODER_FORM, ToolUse((MIXED,), must_call=True)))
        assert not ends(steps, paired(inside))

    def test_a_tool_that_tells_of_no_arguments_takes_any(self) -> None:
        steps = States(held(CODER_FORM, ToolUse((Tool("text"),), must_call=True)))
        assert ends(steps, paired(""))
        assert ends(steps, paired("a=1|b=x\ny"))
        assert not ends(steps, paired("a=1") + "!")

    def test_strict_ones_are_refused_where_only_quotes_could_hold_them(self) -> None:
        with pytest.raises(InvalidRequest, match="'minLength' at #/properties/path of text"):
            held(CODER_FORM, ToolUse((_strict(MIXED, "odd"),), must_call=True))
        with pytest.raises(InvalidRequest, match="'not' at #/properties/odd is not supported"):
            held(CODER_FORM, ToolUse((_strict(MIXED),), must_call=True))

    def test_strict_ones_are_held(self) -> None:
        steps = States(held(CODER_FORM, ToolUse((_strict(MIXED, "odd", "path"),), must_call=True)))
        assert ends(steps, paired("mode=r|depth=2"))
        assert not ends(steps, paired("mode=r|depth=20"))

    def test_text_is_free_up_to_a_call(self) -> None:
        free = States(held(CODER_FORM, ToolUse((MIXED,))))
        assert ends(free, f"So: <tool_cal {paired('path=a|mode=r')}")
        assert not ends(free, f"So: {paired('path=a')}")


def _strict(tool: Tool, *without: str) -> Tool:
    properties = {k: v for k, v in tool.parameters["properties"].items() if k not in without}
    required = [name for name in tool.parameters["required"] if name not in without]
    told = {**tool.parameters, "properties": properties, "required": required}
    return replace(tool, parameters=told, strict=True)
