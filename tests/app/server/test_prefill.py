"""An answer whose start is given, together with tools and formats."""

import json
from typing import Any

import pytest

from tests.app.server import serving
from tests.app.server.serving import ADD_TOOL, SUM, TWO_NUMBERS, answer, events, joined, post

ASKED = {"role": "user", "content": SUM}
ADDER = {"name": "add", "input_schema": TWO_NUMBERS}
FORM = {"type": "json_schema", "json_schema": {"schema": TWO_NUMBERS}}
STARTS = ['{"a": 1', '{"a":', "{", '{"a": 42, "b": 4']


def begun(start: str, **fields: Any) -> dict[str, Any]:
    story = [ASKED, {"role": "assistant", "content": start}]
    return {"messages": story, "continue_final_message": True, "max_tokens": 200, **fields}


def rest(url: str, start: str, **fields: Any) -> str:
    return str(serving.choice(url, **begun(start, **fields))["message"]["content"])


@pytest.mark.parametrize("start", STARTS)
def test_a_format_holds_from_the_given_start_on(url: str, start: str) -> None:
    for drafter in ("none", "auto"):
        found = json.loads(start + rest(url, start, response_format=FORM, drafter=drafter))
        assert [*found] == ["a", "b"]
        assert all(0 <= value <= 99 for value in found.values())
    streamed = serving.deltas(url, **begun(start, response_format=FORM))
    assert start + joined(streamed) == start + rest(url, start, response_format=FORM)


@pytest.mark.parametrize("start", ["The answer", "Hello! How", "17 + 25 ="])
def test_a_message_may_say_itself_that_it_is_continued(url: str, start: str) -> None:
    """Aider asks so for the rest of an answer that was cut off."""
    marked = {"role": "assistant", "content": start, "prefix": True}
    found = answer(url, messages=[ASKED, marked], max_tokens=6)
    assert found["choices"][0]["message"]["content"] == rest(url, start, max_tokens=6)
    earlier = answer(url, messages=[ASKED, marked, ASKED], max_tokens=6)
    unmarked = answer(url, messages=[ASKED, {**marked, "prefix": None}, ASKED], max_tokens=6)
    assert earlier["choices"][0]["message"] == unmarked["choices"][0]["message"]


def test_a_grammar_holds_from_the_given_start_on(url: str) -> None:
    assert rest(url, "yes, ", grammar='root ::= "yes, always" | "no"') == "always"


@pytest.mark.parametrize("start", ["Sure: ", '{"b"', "[1"])
def test_a_start_that_does_not_fit_its_format_is_refused(url: str, start: str) -> None:
    refused = post(url, "chat/completions", **begun(start, response_format=FORM))
    assert refused.status_code == 400
    assert "does not fit its format" in refused.json()["error"]["message"]


@pytest.mark.parametrize("start", ["Hello! How", "I add them. ", "{"])
def test_an_answer_is_begun_while_tools_are_offered(url: str, start: str) -> None:
    story = [ASKED, {"role": "assistant", "content": start}]
    assert rest(url, start, tools=[ADD_TOOL]) != ""
    asked = {"messages": story, "tools": [ADDER], "max_tokens": 6}
    [block] = answer(url, "messages", **asked)["content"]
    assert block["type"] == "text"
    texts = [event["delta"]["text"] for event in events(url, "messages", **asked)[2:-3]]
    assert "".join(texts) == block["text"]


@pytest.mark.parametrize("start", ["I add them.", '<tool_call>\n{"name": "add"', "<tool_call>\n"])
def test_a_call_comes_after_the_given_start(url: str, start: str) -> None:
    fields = {"tools": [ADD_TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    found = serving.choice(url, **begun(start, **fields))
    [call] = found["message"]["tool_calls"]
    assert call["function"]["name"] == "add"
    assert [*json.loads(call["function"]["arguments"])] == ["a", "b"]
    assert found["message"]["content"] is None
