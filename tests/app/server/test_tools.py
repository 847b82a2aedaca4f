"""Tools over HTTP, with the bundled model: what is called exists and fits, whoever drafts."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.app.server.serving import served

ASKED = {"role": "user", "content": "What is 17 + 25? Use the tool."}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "minimum": 0, "maximum": 99},
                "b": {"type": "integer", "minimum": 0, "maximum": 99},
            },
            "required": ["a", "b"],
        },
    },
}
LOOK = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"what": {"enum": ["sum", "product"]}}, "required": ["what"]},
    },
}  # fmt: skip
TOOLS = [ADD, LOOK]
NAMED = {"type": "function", "function": {"name": "look_up"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17, "b": 25}'}}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "42"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("home")) as url:
        yield url


def ask(url: str, **fields: Any) -> httpx.Response:
    body = {"model": "pocket", "messages": [ASKED], "max_tokens": 200, **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def choice(url: str, **fields: Any) -> dict[str, Any]:
    answer = ask(url, **fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


def called(url: str, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """The calls of an answer that has nothing else."""
    found = choice(url, **fields)
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] is None
    calls = found["message"]["tool_calls"]
    assert all(call["type"] == "function" and call["id"].startswith("call_") for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def fits(name: str, arguments: dict[str, Any]) -> bool:
    if name == "add":
        return [*arguments] == ["a", "b"] and all(0 <= each <= 99 for each in arguments.values())
    return name == "look_up" and arguments["what"] in ("sum", "product")


def test_a_call_that_is_required_comes_and_is_the_same_with_every_drafter(url: str) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    plain = called(url, **fields, drafter="none")
    assert len(plain) == 1
    assert fits(*plain[0])
    for drafter in ("auto", "lookup", "suffix", "chain", "sequoia", "specexec", "early_exit"):
        assert called(url, **fields, drafter=drafter) == plain


@pytest.mark.parametrize("seed", range(4))
def test_drawn_calls_fit_too(url: str, seed: int) -> None:
    drawn = {"temperature": 1.5, "seed": seed, "tools": TOOLS, "tool_choice": "required"}
    found = choice(url, **drawn)
    calls = found["message"]["tool_calls"]
    whole = calls if found["finish_reason"] == "tool_calls" else calls[:-1]
    assert all(fits(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in whole)


def test_the_named_tool_is_called(url: str) -> None:
    (name, arguments), *others = called(url, tools=TOOLS, tool_choice=NAMED)
    assert (name, others) == ("look_up", [])
    assert fits(name, arguments)


def test_without_need_the_answer_is_text_the_same_with_every_drafter(url: str) -> None:
    plain = choice(url, tools=TOOLS, drafter="none")
    assert plain["message"]["content"]
    assert "tool_calls" not in plain["message"]
    assert plain["finish_reason"] == "stop"
    for drafter in ("auto", "suffix", "chain"):
        assert choice(url, tools=TOOLS, drafter=drafter)["message"] == plain["message"]


def test_the_model_reads_the_tools_and_what_came_of_calls(url: str) -> None:
    def read(**fields: Any) -> int:
        return int(ask(url, max_tokens=1, **fields).json()["usage"]["prompt_tokens"])

    assert read(tools=TOOLS) > read() + 50
    assert read(tools=TOOLS, tool_choice="none") == read()
    story = [ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]
    assert read(messages=story) > read() + 20
    assert choice(url, messages=story, tools=TOOLS)["message"]["role"] == "assistant"


def streamed(url: str, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "pocket", "messages": [ASKED], "max_tokens": 200, "stream": True, **fields}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line)["choices"][0] for line in lines[:-1]]


def test_a_stream_brings_the_same_call_in_parts(url: str) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    chunks = streamed(url, **fields)
    parts = [part for chunk in chunks for part in chunk["delta"].get("tool_calls", [])]
    assert [part["index"] for part in parts] == [0] * len(parts)
    assert parts[0]["id"].startswith("call_")
    assert not any("id" in part for part in parts[1:])
    name = parts[0]["function"]["name"]
    arguments = "".join(part["function"]["arguments"] for part in parts)
    assert [(name, json.loads(arguments))] == called(url, **fields)
    assert not any(chunk["delta"].get("content") for chunk in chunks)
    assert chunks[-1]["finish_reason"] == "tool_calls"


def test_a_stream_of_text_is_the_whole_text(url: str) -> None:
    whole = choice(url, tools=TOOLS)["message"]["content"]
    chunks = streamed(url, tools=TOOLS)
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == whole
    assert chunks[-1]["finish_reason"] == "stop"


def test_openais_client_calls_and_answers(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        story: list[Any] = [ASKED]
        asked: Any = {
            "model": "pocket",
            "tools": [ADD],
            "max_tokens": 200,
            "parallel_tool_calls": False,
        }
        first = client.chat.completions.create(messages=story, tool_choice="required", **asked)
        said = first.choices[0].message
        assert said.tool_calls
        story.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls:
            assert call.type == "function"
            assert fits(call.function.name, json.loads(call.function.arguments))
            story.append({"role": "tool", "tool_call_id": call.id, "content": "42"})
        second = client.chat.completions.create(messages=story, **asked)
        assert second.choices[0].finish_reason in ("stop", "length", "tool_calls")
        with client.chat.completions.stream(messages=[ASKED], tool_choice="required", **asked) as s:
            final = s.get_final_completion().choices[0].message
        assert [c.function.name for c in final.tool_calls or ()] == ["add"] * len(said.tool_calls)


def taking(parameters: dict[str, Any]) -> dict[str, Any]:
    """A tool with these arguments."""
    return {"type": "function", "function": {"name": "odd", "parameters": parameters}}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": [ADD, ADD]}, "tools", "two tools have the name 'add'"),
    ({"tools": [{"type": "retrieval"}]}, "tools.0.type", "function"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name", "pattern"),
    ({"tools": [taking({"type": "string"})]}, "tools", "those of the tool 'odd' may be string; say"),
    ({"tools": [taking({"enum": ["x", None]})]}, "tools", "may be string or null"),
    ({"tools": [taking({"anyOf": [{"type": "integer"}, {"type": "object"}]})]}, "tools", "may be integer"),
    ({"tools": [taking({"$ref": "#/$defs/A", "$defs": {"A": {"type": "array"}}})]}, "tools", "be array"),
    ({"tool_choice": "required"}, "tool_choice", "no tool that could be called"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", 'may be "none", "auto"'),
    ({"tools": [ADD], "tool_choice": NAMED}, "tool_choice", "no tool 'look_up'"),
    ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "tools", "calls no tools"),
    ({"functions": [ADD["function"]]}, "functions", "older name of tools"),
    (
        {"messages": [ASKED, {"role": "assistant", "tool_calls": [
            {**CALL, "function": {"name": "add", "arguments": "{17"}}]}, RESULT]},
        "messages.1.tool_calls.0.function.arguments", "not JSON",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {
            "type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}}}]},
        "tools", "'pattern' at #/properties/a: '(?=' in the pattern",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "told"), WRONG)
def test_what_is_wrong_is_told_in_a_sentence(
    url: str, fields: dict[str, Any], param: str, told: str
) -> None:
    answer = ask(url, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert told in error["message"]
