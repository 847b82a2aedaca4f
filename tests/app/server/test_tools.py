"""Tools over HTTP, with the bundled model: each call fits its tool, with every drafter."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.app.server import serving
from tests.app.server.serving import ADD_TOOL as ADD
from tests.app.server.serving import deltas, events, joined, served_changed, story_of_a_call

ASKED = {"role": "user", "content": "What is 17 + 25? Use the tool."}
LOOK = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"what": {"enum": ["sum", "product"]}}, "required": ["what"]},
    },
}  # fmt: skip
TOOLS = [ADD, LOOK]
ONE_CALL = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
NAMED = {"type": "function", "function": {"name": "look_up"}}


def asked(**fields: Any) -> dict[str, Any]:
    return {"messages": [ASKED], "max_tokens": 200, **fields}


def choice(url: str, **fields: Any) -> dict[str, Any]:
    return serving.choice(url, **asked(**fields))


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


def test_a_required_call_is_the_same_with_every_drafter(url: str) -> None:
    fields = ONE_CALL
    plain = called(url, **fields, drafter="none")
    assert len(plain) == 1
    assert fits(*plain[0])
    for drafter in ("auto", "lookup", "chain", "early_exit"):
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


def test_only_allowed_tools_are_called(url: str) -> None:
    """As pydantic-ai and OpenAI's agents name them."""
    allowed = {"mode": "required", "tools": [NAMED, {"type": "web_search"}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    one = {"tool_choice": choice, "parallel_tool_calls": False}
    assert called(url, tools=TOOLS, **one) == called(url, **{**ONE_CALL, "tools": [LOOK]})
    response = serving.answer(
        url,
        "responses",
        input=ASKED["content"],
        tools=[{"type": "function", **tool["function"]} for tool in TOOLS],
        tool_choice={
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "look_up"}],
        },
    )
    assert {item["name"] for item in response["output"]} == {"look_up"}
    assert response["tool_choice"]["tools"] == [{"type": "function", "name": "look_up"}]


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin" /.*/'}
PATCH = {"name": "patch", "description": "Changes a file.", "format": GRAMMAR}
NESTED = {**PATCH, "format": {"type": "grammar", "grammar": GRAMMAR}}
CUSTOM = {"type": "custom", "custom": {"name": "patch"}}


def test_a_custom_tool_is_called_with_a_text(url: str) -> None:
    """Codex patches files by such a tool; before, it was left out of the request."""
    fields = {
        "tools": [ADD, {"type": "custom", "custom": NESTED}],
        "tool_choice": CUSTOM,
        "max_tokens": 300,
    }
    (call,) = choice(url, **fields)["message"]["tool_calls"]
    assert (call["type"], call["custom"]["name"]) == ("custom", "patch")
    assert call["custom"]["input"]
    chunks = streamed(url, **fields)
    ((part,),) = [
        chunk["delta"]["tool_calls"] for chunk in chunks if "tool_calls" in chunk["delta"]
    ]
    assert (part["index"], part["type"], part["custom"]) == (0, "custom", call["custom"])
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Done."}
    assert serving.answer(
        url, **asked(messages=[ASKED, said, result], tools=fields["tools"], max_tokens=9)
    )


def test_a_custom_tool_is_called_in_a_response(url: str) -> None:
    tools = [{"type": "function", **ADD["function"]}, {"type": "custom", **PATCH}]
    fields: Any = {"model": "pocket", "tools": tools, "max_output_tokens": 300}
    forced: Any = {**fields, "tool_choice": {"type": "custom", "name": "patch"}}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        with client.responses.stream(input=ASKED["content"], **forced) as stream:
            parts = [
                event.delta
                for event in stream
                if event.type == "response.custom_tool_call_input.delta"
            ]
            streamed_call = stream.get_final_response().output[0]
        first = client.responses.create(input=ASKED["content"], **forced)
        (call,) = first.output
        assert (call.type, call.name) == ("custom_tool_call", "patch")
        assert "".join(parts) == call.input == streamed_call.input
        assert first.tool_choice.model_dump() == forced["tool_choice"]
        assert [tool.type for tool in first.tools] == ["function", "custom"]
        result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done."}
        second = client.responses.create(input=[ASKED, call.model_dump(), result], **fields)
        again = client.responses.create(input=[result], previous_response_id=first.id, **fields)
        assert second.usage.input_tokens == again.usage.input_tokens


def test_the_model_reads_what_a_custom_tool_takes(url: str) -> None:
    def read(*tools: Any) -> int:
        found = serving.answer(url, **asked(tools=[*tools], max_tokens=1))
        return int(found["usage"]["prompt_tokens"])

    plain = {"type": "custom", "custom": {"name": "patch", "description": "Changes a file."}}
    assert read({"type": "custom", "custom": NESTED}) > read(plain) > read()
    assert read({"type": "custom", "custom": {**PATCH, "format": {"type": "text"}}}) == read(plain)


def test_an_optional_call_is_text_with_every_drafter(url: str) -> None:
    plain = choice(url, tools=TOOLS, drafter="none")
    assert plain["message"]["content"]
    assert "tool_calls" not in plain["message"]
    assert plain["finish_reason"] == "stop"
    for drafter in ("auto", "suffix", "chain"):
        assert choice(url, tools=TOOLS, drafter=drafter)["message"] == plain["message"]


def test_the_model_reads_tools_and_results(url: str) -> None:
    def read(**fields: Any) -> int:
        found = serving.answer(url, **asked(max_tokens=1, **fields))
        return int(found["usage"]["prompt_tokens"])

    assert read(tools=TOOLS) > read() + 50
    assert read(tools=TOOLS, tool_choice="none") == read()
    story = story_of_a_call("call_1", '{"a": 17, "b": 25}')
    assert read(messages=story) > read() + 20
    assert choice(url, messages=story, tools=TOOLS)["message"]["role"] == "assistant"


WORD = {"type": "object", "properties": {"word": {"enum": ["yes", "no"]}}, "required": ["word"], "additionalProperties": False}  # fmt: skip
IN_A_FORM = {
    "tools": TOOLS,
    "response_format": {"type": "json_schema", "json_schema": {"name": "word", "schema": WORD}},
}


def test_with_a_format_an_answer_is_calls_or_fits_it(url: str) -> None:
    """Agents that want a result in a form send their tools with it, and got an error."""
    for seed in range(4):
        found = choice(url, **IN_A_FORM, temperature=1.5, seed=seed)
        calls, content = found["message"].get("tool_calls"), found["message"]["content"]
        assert (calls is None) == (content is not None)
        assert calls or json.loads(content)["word"] in ("yes", "no")
        whole = (calls or [])[: None if found["finish_reason"] == "tool_calls" else -1]
        assert all(
            fits(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in whole
        )
    one = {**IN_A_FORM, "parallel_tool_calls": False, "continue_final_message": True}
    begun = [ASKED, {"role": "assistant", "content": "<tool_call>"}]
    ((name, arguments),) = called(url, **one, messages=begun)
    assert fits(name, arguments)


def test_with_a_format_an_answer_is_the_same_with_every_drafter(url: str) -> None:
    plain = choice(url, **IN_A_FORM, drafter="none")
    for drafter in ("auto", "suffix", "chain", "early_exit"):
        again = choice(url, **IN_A_FORM, drafter=drafter)
        assert again["message"]["content"] == plain["message"]["content"]
        assert again["finish_reason"] == plain["finish_reason"]


def test_a_required_call_comes_whatever_the_format(url: str) -> None:
    forced = {**IN_A_FORM, "parallel_tool_calls": False}
    ((name, arguments),) = called(url, **forced, tool_choice=NAMED)
    assert fits(name, arguments)
    assert called(url, **forced, tool_choice="required") == called(url, **ONE_CALL)
    content = choice(url, **IN_A_FORM, tool_choice="none")["message"]["content"]
    assert json.loads(content)["word"] in ("yes", "no")


def streamed(url: str, **fields: Any) -> list[dict[str, Any]]:
    return [event["choices"][0] for event in events(url, **asked(**fields))]


def test_a_stream_brings_the_same_call_in_parts(url: str) -> None:
    fields = ONE_CALL
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


def test_openais_client_calls_and_answers(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        story: list[Any] = [ASKED]
        fields: Any = {"model": "pocket", "tools": [ADD], "max_tokens": 200, "parallel_tool_calls": False}  # fmt: skip
        forced = {**fields, "tool_choice": "required"}
        first = client.chat.completions.create(messages=story, **forced)
        said = first.choices[0].message
        assert said.tool_calls
        story.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls:
            assert call.type == "function"
            assert fits(call.function.name, json.loads(call.function.arguments))
            story.append({"role": "tool", "tool_call_id": call.id, "content": "42"})
        second = client.chat.completions.create(messages=story, **fields)
        assert second.choices[0].finish_reason in ("stop", "length", "tool_calls")
        with client.chat.completions.stream(messages=[ASKED], **forced) as stream:
            final = stream.get_final_completion().choices[0].message
        assert [c.function.name for c in final.tool_calls or ()] == ["add"] * len(said.tool_calls)


TEMPLATE = """{{ bos_token }}
{%- if tools %}{{ '<|system|>' + tools | tojson + '<|end|>' }}{% endif %}
{%- for m in messages %}
{{- '<|' + ('user' if m.role == 'tool' else m.role) + '|>' + m.content }}
{%- for c in m.tool_calls %}
{{- '\\n<tool_call>\\n<function=' + c.function.name + '>\\n' }}
{%- for name, value in c.function.arguments|items %}
{{- '<parameter=' + name + '>\\n' }}{{ value if value is string else value | tojson }}{{ '\\n</parameter>\\n' }}
{%- endfor %}
{{- '</function>\\n</tool_call>' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}<|assistant|>"""
PROPERTIES = {
    "mode": {"enum": ["new", "more"]},
    "line": {"type": "integer", "minimum": 0, "maximum": 99},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
}


def with_required(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


MARK = with_required("mark", **PROPERTIES)
WRITE = with_required("write", text={"type": "string"}, **PROPERTIES)
WRITTEN = {"id": "c", "type": "function", "function": {"name": "write", "arguments": '{"mode": "new", "line": 7, "tags": [], "text": "\\"hi\\""}'}}  # fmt: skip


class TestArgumentsInPairs:
    """A template that writes each argument for itself: programs see JSON, as of any other."""

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        def change(folder: Path) -> None:
            (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")

        with served_changed(tmp_path_factory.mktemp("pairs"), change) as url:
            yield url

    def body(self, **fields: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Write 'good morning' in line 7."}]
        return {"messages": messages, "max_tokens": 120, **ONE_CALL, "tools": [WRITE], **fields}

    def ask(self, url: str, **fields: Any) -> dict[str, Any]:
        return serving.choice(url, **self.body(**fields))

    def test_drawn_calls_fit_with_every_drafter(self, url: str) -> None:
        drawn = {"temperature": 1.0, "tools": [MARK]}
        for seed, drafter in enumerate(("auto", "recycling")):
            plain = self.ask(url, drafter="none", seed=seed, **drawn)
            assert (plain["finish_reason"], plain["message"]["content"]) == ("tool_calls", None)
            ((name, written),) = names_and_arguments(plain)
            arguments = json.loads(written)
            assert (name, [*arguments]) == ("mark", ["mode", "line", "tags"])
            assert arguments["mode"] in ("new", "more")
            assert type(arguments["line"]) is int
            assert len(arguments["tags"]) <= 3
            assert set(arguments["tags"]) <= {"a", "b"}
            other = self.ask(url, drafter=drafter, seed=seed, **drawn)
            assert names_and_arguments(other) == [(name, written)]

    def test_calls_in_a_stream_are_the_same(self, url: str) -> None:
        drawn = {"temperature": 1.0, "seed": 3, "max_tokens": 200}
        whole = names_and_arguments(self.ask(url, **drawn))
        found = deltas(url, **self.body(**drawn))
        parts = [part["function"] for delta in found for part in delta.get("tool_calls", [])]
        assert len(parts) > 1
        assert [(parts[0]["name"], "".join(part["arguments"] for part in parts))] == whole
        assert joined(found) == ""

    def test_earlier_calls_are_written_as_the_template_has_them(self, url: str) -> None:
        def read(*more: dict[str, Any]) -> int:
            story = [ASKED, *more]
            body = self.body(messages=story, max_tokens=1, tool_choice="auto")
            return int(serving.answer(url, **body)["usage"]["prompt_tokens"])

        call = {"role": "assistant", "content": None, "tool_calls": [WRITTEN]}
        assert read(call, {"role": "tool", "tool_call_id": "c", "content": "done"}) > read() + 40


def names_and_arguments(found: dict[str, Any]) -> list[tuple[str, str]]:
    calls = found["message"].get("tool_calls", [])
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
