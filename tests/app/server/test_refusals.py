"""Requests that are refused: the same shape for every protocol, the field, and a sentence of what to do."""

from typing import Any

import pytest

from tests.app.server import serving
from tests.app.server.serving import ADD_TOOL as ADD
from tests.app.server.serving import post

HI = [{"role": "user", "content": "hi"}]
ASKED: dict[str, dict[str, Any]] = {  # which nothing is wrong with
    "chat/completions": {"messages": HI},
    "completions": {"prompt": "a"},
    "responses": {"input": "hi"},
    "messages": {"max_tokens": 5, "messages": HI},
}
HALF = "\ud800"
NO_TYPE = {"type": "x"}


def taking(parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A tool with these arguments."""
    return {"type": "function", "function": {"name": "odd", "parameters": parameters, **more}}


def said(content: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": content}]


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def allowing(*tools: object, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}


NAMED = {"type": "function", "function": {"name": "look_up"}}
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(300):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
LOOKING_AHEAD = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
CHATS: list[tuple[dict[str, Any], str, str]] = [
    ({"best_of": 2}, "best_of", "send n to get several"),
    ({"functions": [{"name": "f"}]}, "functions", "older name of tools"),
    ({"function_call": {"name": "f"}}, "function_call", "older name of tools"),
    ({"guided_json": {"type": "object"}}, "guided_json", "send response_format"),
    ({"guided_choice": ["a", "b"]}, "guided_choice", "send response_format"),
    ({"structured_outputs": {"regex": "a+"}}, "structured_outputs", "or grammar (GBNF)"),
    ({"prediction": "x"}, "prediction", '{"type": "content", "content": "..."}'),
    ({"n": 17}, "n", "less than or equal to 16"),
    ({"messages": said("")}, "messages", "empty"),
    ({"messages": said(" \n\t")}, "messages", "empty"),
    ({"messages": said(None)}, "messages", "empty"),
    ({"messages": said([])}, "messages", "empty"),
    ({"messages": [{"role": "user"}]}, "messages", "empty"),
    ({"messages": said("hi", "robot")}, "messages.0.role", "'user'"),
    ({"messages": [{"content": "hi"}]}, "messages.0.role", "required"),
    ({"messages": said(5)}, "messages.0.content", "string"),
    ({"messages": said([{"type": "image_url", "image_url": {}}])}, "messages.0.content", "image_url"),
    ({"messages": said([{"text": "hi"}])}, "messages.0.content", '{"type": "text"'),
    ({"messages": said(HALF)}, "messages.0.content", "surrogate"),
    ({"tools": [ADD, taking({}, name="add")]}, "tools", "two tools have the name 'add'"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name", "pattern"),
    ({"tools": [taking({"type": "string"})]}, "tools", "those of the tool 'odd' may be string; say"),
    ({"tools": [taking({"enum": ["x", None]})]}, "tools", "may be string or null"),
    ({"tools": [taking({"anyOf": [{"type": "integer"}, {"type": "object"}]})]}, "tools", "may be integer"),
    ({"tools": [taking({"$ref": "#/$defs/A", "$defs": {"A": {"type": "array"}}})]}, "tools", "be array"),
    ({"tools": [taking(DEEP)]}, "tools.0.function.parameters", "more than 128 levels deep"),
    ({"tools": [taking(LOOKING_AHEAD, strict=True)]}, "tools", "'pattern' at #/properties/a: '(?=' in the pattern"),
    ({"tool_choice": "required"}, "tool_choice", "no tool that could be called"),
    ({"tools": [ADD], "tool_choice": "some"}, "tool_choice", 'may be "none", "auto"'),
    ({"tools": [ADD], "tool_choice": NAMED}, "tool_choice", "no tool 'look_up'"),
    ({"tools": [ADD], "tool_choice": allowing(NAMED)}, "tool_choice", "no tool 'look_up'"),
    ({"tools": [ADD], "tool_choice": allowing({"type": "function"})}, "tool_choice", "must have a name"),
    ({"tools": [ADD], "tool_choice": allowing(ADD, mode="none")}, "tool_choice", '"auto" or "required"'),
    ({"tools": [ADD], "tool_choice": allowing(mode="required")}, "tool_choice", "no tool that could be called"),
    ({"tools": [ADD], "tool_choice": "required", "grammar": 'root ::= "a"'}, "tools", "no call can be required"),
    ({"json_schema": {"pattern": "\\b"}}, "json_schema", "'pattern' at #: '\\\\b' in the pattern"),
    ({"grammar": 'root ::= "a'}, "grammar", "line 1: it ends too early"),
    ({"grammar": 'root ::= "a"', "json_schema": {}}, "grammar", "an answer has one format"),
    ({"response_format": schema_format(NO_TYPE)}, "response_format", "'type' at # is 'x'"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "'json_schema'"),
]  # fmt: skip
TEXTS = [
    ({"prompt": ""}, "prompt", "the prompt is empty"),
    ({"prompt": []}, "prompt", "the prompt is empty"),
    ({"prompt": None}, "prompt", "a text, a list of token ids"),
    ({"prompt": [1, -2]}, "prompt", "whole numbers from 0"),
    ({"prompt": ["a", 1]}, "prompt", "whole numbers from 0"),
    ({"prompt": ["a", ""]}, "prompt", "the prompt is empty"),
    ({"prompt": ["a"] * 129}, "prompt", "at most 128"),
    ({"prompt": [4096]}, None, "token ids must lie in 0..4095"),
    ({"max_tokens": 0}, "max_tokens", "with echo"),
    ({"prompt": HALF}, "prompt", "half of a surrogate pair"),
    ({"suffix": "b"}, "suffix", "the middle of a file"),
    ({"best_of": 2}, "best_of", "send n to get several"),
    ({"guided_regex": "a+"}, "guided_regex", "or grammar (GBNF)"),
    ({"logprobs": 21}, "logprobs", "less than or equal to 20"),
    ({"drafter": "warp"}, "drafter", "warp"),
]
OWN = {"type": "function", **serving.ADD}
RESPONSES = [
    ({"input": []}, "input", "a list of 1 to 20000 items"),
    ({"input": 3}, "input", "send a text, or a list"),
    ({"input": " "}, "input", "the last item is empty"),
    ({"input": said("x", "robot")}, "input", "item 0 must look like"),
    ({"input": said(3)}, "input", "content of item 0"),
    ({"input": said([{"type": "input_image", "image_url": "x"}])}, "input", "parts of type input_image are not supported (item 0)"),
    ({"input": said([{"x": 1}])}, "input", "parts of item 0 must look"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input", "there is no item 'x'"),
    ({"input": [{"type": "item_reference"}]}, "input", "items of type item_reference"),
    ({"input": HALF}, "input", "half of a surrogate pair"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation"),
    ({"conversation": "conv_1"}, "conversation", "no stored conversations here"),
    ({"background": True}, "background", "leave this out"),
    ({"response_format": {"type": "json_object"}}, "response_format", "text.format"),
    ({"n": 2}, "n", "one answer comes"),
    ({"tools": [OWN, {**OWN, "description": "Another."}]}, "tools", "two tools have the name 'add'"),
    ({"tools": [OWN], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "no tool 'x'"),
    ({"tools": [OWN], "tool_choice": "some"}, "tool_choice", '{"type": "function"'),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": NO_TYPE}}}, "text", "'type' at # is 'x'"),
    ({"max_output_tokens": 0}, "max_output_tokens", "greater than or equal to 1"),
]  # fmt: skip
ADDER = {"name": "add", "input_schema": serving.TWO_NUMBERS}
BEGUN = [*HI, *said("It is", "assistant")]
MESSAGES = [
    ({"messages": []}, "messages", "send 1 to 20000 messages"),
    ({"messages": "hi"}, "messages", "send 1 to 20000 messages"),
    ({"messages": said("x", "robot")}, "messages", "message 0 must look like"),
    ({"messages": said(3)}, "messages", "parts of message 0 must look like"),
    ({"messages": said([{"type": "image"}])}, "messages", "parts of type image are not supported (message 0)"),
    ({"messages": said(" ")}, "messages", "the last message is empty"),
    ({"messages": said("It is", "assistant")}, "messages", "must be the user's"),
    ({"messages": [*said([{"type": "tool_use", "id": "x"}], "assistant"), *HI]}, "messages", "a tool_use must have"),
    ({"messages": said([{"type": "tool_result"}])}, "messages", "must have a tool_use_id"),
    ({"max_tokens": -2}, "max_tokens", "greater than or equal to 0"),
    ({"tools": [{"name": "x"}]}, "tools.0", "a tool must look like"),
    ({"tools": [ADDER, {**ADDER, "description": "Another."}]}, "tools", "two tools have the name 'add'"),
    ({"tools": [ADDER], "tool_choice": {"type": "tool"}}, "tool_choice", 'or "tool" with a name'),
    ({"tools": [ADDER], "tool_choice": {"type": "any"}, "grammar": 'root ::= "a"'}, "tools", "no call can be required"),
    ({"output_config": {"format": {"type": "json_schema", "schema": NO_TYPE}}}, "output_config", "'type' at # is 'x'"),
    ({"response_format": {"type": "json_object"}}, "response_format", "output_config.format"),
    ({"model": "nobody"}, "model", "nobody"),
]  # fmt: skip
WRONG = dict(zip(ASKED, (CHATS, TEXTS, RESPONSES, MESSAGES), strict=True))


@pytest.mark.parametrize(
    ("route", "fields", "param", "words"),
    [(route, *each) for route, wrong in WRONG.items() for each in wrong],
)
def test_wrong_requests_are_refused(
    url: str, route: str, fields: dict[str, Any], param: str | None, words: str
) -> None:
    response = post(url, route, **{**ASKED[route], **fields})
    body = response.json()
    assert response.status_code == (404 if param == "model" else 400)
    missing = route == "messages" and param == "model"
    kind = "not_found_error" if missing else "invalid_request_error"
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["error"]["param"] == param
    assert words in body["error"]["message"]
    assert "\n" not in body["error"]["message"]
    if param in ("best_of", "functions", "function_call", "guided_json", "structured_outputs"):
        assert body["error"]["code"] == "unsupported"


def test_the_next_request_is_answered(url: str) -> None:
    for route, fields in ASKED.items():
        assert post(url, route, **fields).status_code == 200
