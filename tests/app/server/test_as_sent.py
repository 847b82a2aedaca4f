"""Requests as clients send them: numbers, contents, histories, tools and names of many habits."""

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.app.server import serving
from tests.app.server.fake_assistant import CONTEXT
from tests.app.server.serving import (
    ADD_TOOL,
    SUM,
    TWO_NUMBERS,
    Running,
    answer,
    chat,
    choice,
    events,
    post,
    story_of_a_call,
)

ASKED = {"role": "user", "content": SUM}
MANY = [f"<stop{number}>" for number in range(40)]
ADDER = {"name": "add", "input_schema": TWO_NUMBERS}
FLAT = {"type": "function", **serving.ADD}


def chatted(**fields: Any) -> dict[str, Any]:
    return {"messages": [ASKED], "max_tokens": 4, **fields}


ROUTES: dict[str, dict[str, Any]] = {
    "chat/completions": chatted(),
    "completions": {"prompt": SUM, "max_tokens": 4},
    "responses": {"input": SUM, "max_output_tokens": 4},
    "messages": chatted(),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "fields",
    [
        {"seed": -1, "temperature": 1},
        {"seed": -(2**40)},
        {"top_p": 0, "temperature": 1},
        {"top_k": -1},
        {"min_p": 1, "temperature": 1},
        {"stop": MANY},
        {"stop": ["", "x"]},
        {"stop": ""},
        {"seed": 2**70, "temperature": 1},
        {"seed": 7.0},
        {"top_k": 40.0, "temperature": 1},
        {"model": None},
        {"model": ""},
    ],
)
def test_values_that_other_servers_take(url: str, route: str, fields: dict[str, Any]) -> None:
    assert post(url, route, **{**ROUTES[route], **fields}).status_code == 200


def test_numbers_mean_what_they_mean_elsewhere(url: str) -> None:
    story = [{"role": "user", "content": "Tell me a story."}]
    hot: dict[str, Any] = chatted(messages=story, temperature=2, max_tokens=30)
    assert len({chat(url, **{**hot, "seed": -1}) for _ in range(4)}) > 1
    assert len({chat(url, **{**hot, "seed": -7}) for _ in range(2)}) == 1
    assert chat(url, **{**hot, "top_p": 0, "seed": 5}) == chat(url, **{**hot, "temperature": 0})
    first, second, *_ = chat(url, **chatted(max_tokens=30)).split()
    assert chat(url, **chatted(max_tokens=30, stop=[*MANY, second])).strip() == first


@pytest.mark.parametrize("route", ["chat/completions", "completions", "messages"])
def test_a_limit_may_have_llama_servers_name(url: str, route: str) -> None:
    asked: dict[str, Any] = {"prompt": "a"} if route == "completions" else {"messages": [ASKED]}
    usage = [
        answer(url, route, **asked, **limits)["usage"]
        for limits in ({"max_tokens": 3}, {"n_predict": 3}, {"max_tokens": 3, "n_predict": 9})
    ]
    counted = "output_tokens" if route == "messages" else "completion_tokens"
    assert [each[counted] for each in usage] == [3, 3, 3]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_no_limit_but_the_context(url: str, name: str) -> None:
    fields = {
        "messages": [ASKED],
        "grammar": 'root ::= "a b c d e f g h i j k l m n o p"',
        name: -1,
    }
    assert choice(url, **fields)["finish_reason"] == "stop"
    unlimited = {"grammar": 'root ::= "a b c d e f g h i j k l m n o p"', "max_tokens": -1}
    assert answer(url, "completions", prompt="a", **unlimited)["choices"][0]["text"].endswith("p")
    assert answer(url, "messages", messages=[ASKED], **unlimited)["stop_reason"] == "end_turn"


NAME = "a" * 128
TEXTS = [
    [{"type": "text", "text": SUM}],
    [SUM],
    [{"type": "input_text", "text": SUM[:4]}, {"type": "output_text", "text": SUM[4:]}],
]


@pytest.mark.parametrize("content", TEXTS)
def test_a_text_in_parts_of_any_protocol(url: str, content: list[Any]) -> None:
    wanted, said = chat(url, [ASKED], max_tokens=4), [{"role": "user", "content": content}]
    assert chat(url, said, max_tokens=4) == wanted
    assert answer(url, "messages", messages=said, max_tokens=4)["content"][0]["text"] == wanted
    found = answer(url, "responses", input=said, max_output_tokens=4)
    assert found["output"][0]["content"][0]["text"] == wanted


def tokens_of(url: str, *messages: dict[str, Any], **fields: Any) -> int:
    """Of a prompt in Anthropic's form."""
    counted = post(url, "messages/count_tokens", messages=[*messages], **fields)
    return int(counted.json()["input_tokens"])


def test_a_document_is_read_and_reasoning_is_not_said(url: str) -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Rome is old."}, "title": "Rome"}  # fmt: skip
    parts = [document, {"type": "text", "text": SUM}]
    written = {"role": "user", "content": f"Rome\nRome is old.{SUM}"}
    assert tokens_of(url, {"role": "user", "content": parts}) == tokens_of(url, written)


BROKEN = [
    '{"value": ',
    '{"a": 1}{"b": 2}',
    "[1]",
    "null",
    "",
    '"text"',
    "NaN",
    '{"a": "\\ud83d"}',
    "[" * 1200,
]


@pytest.mark.parametrize("arguments", BROKEN)
def test_a_broken_call_does_not_end_a_conversation(url: str, arguments: str) -> None:
    story = [*story_of_a_call("c1", arguments), ASKED]
    assert post(url, "chat/completions", **chatted(messages=story)).status_code == 200
    items = [
        ASKED,
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": arguments},
        {"type": "function_call_output", "call_id": "c1", "output": "not run"},
        ASKED,
    ]
    assert post(url, "responses", input=items, max_output_tokens=4).status_code == 200
    use = {"type": "tool_use", "id": "c1", "name": "add", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "not run"}
    told = [
        ASKED,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result, {"type": "text", "text": SUM}]},
    ]
    assert post(url, "messages", **chatted(messages=told)).status_code == 200


CALL = {"id": "c", "type": "function", "function": {"name": "mcp.server/look", "arguments": "{}"}}
HISTORIES: dict[str, list[dict[str, Any]]] = {
    "a refusal part": [ASKED, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, ASKED],
    "a refusal": [ASKED, {"role": "assistant", "content": None, "refusal": "No."}, ASKED],
    "a function of before there were tools": [ASKED, {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}}, {"role": "function", "name": "add", "content": "42"}],
    "a call without an id": [ASKED, {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}, {"role": "tool", "content": "42"}],
    "a custom call": [ASKED, {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** x"}}]}, {"role": "tool", "tool_call_id": "c", "content": "ok"}],
    "a name with dots": [ASKED, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": "ok"}],
    "a call at the end": [ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL]}],
    "thinking parts": [ASKED, {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "42"}]}, ASKED],
    "system messages anywhere": [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, ASKED, {"role": "system", "content": "c"}],
}  # fmt: skip


@pytest.mark.parametrize("story", HISTORIES.values(), ids=HISTORIES)
def test_histories_of_other_servers(url: str, story: list[dict[str, Any]]) -> None:
    for tools in ([], [ADD_TOOL]):
        found = post(url, "chat/completions", **chatted(messages=story, tools=tools))
        assert found.status_code == 200, found.text


def test_a_call_at_the_end_in_every_protocol(url: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a": 1}'}
    use = {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}}
    ends = [ASKED, {"role": "assistant", "content": [use]}]
    assert post(url, "responses", input=[ASKED, call], max_output_tokens=4).status_code == 200
    assert post(url, "messages", **chatted(messages=ends)).status_code == 200


IMAGES = [
    {"type": "image_url", "image_url": {"url": "data:,"}},
    {"type": "image", "source": {"type": "base64", "data": "x"}},
    {"type": "input_image", "image_url": "data:,"},
]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_in_a_result_is_a_sentence(url: str, image: dict[str, Any]) -> None:
    content = [{"type": "text", "text": "done "}, image]
    instead = "done (an image was here; this model reads text only)"
    for route, story in told(content).items():
        asked = {**ROUTES[route], **story}
        one, other = (
            post(url, route, **asked),
            post(url, route, **{**asked, **told(instead)[route]}),
        )
        assert one.status_code == 200, one.text
        assert read_tokens(one.json()) == read_tokens(other.json())


def told(output: Any) -> dict[str, dict[str, Any]]:
    """A call with this result in each protocol."""
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    use = {"type": "tool_use", "id": "c", "name": "add", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": output}
    return {
        "chat/completions": {"messages": [*story_of_a_call("c", "{}")[:-1], {"role": "tool", "tool_call_id": "c", "content": output}]},
        "responses": {"input": [ASKED, call, {"type": "function_call_output", "call_id": "c", "output": output}]},
        "messages": {"messages": [ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]},
    }  # fmt: skip


def read_tokens(body: dict[str, Any]) -> int:
    usage = body["usage"]
    cached = usage.get("cache_read_input_tokens", 0)
    return int(usage.get("prompt_tokens") or usage["input_tokens"] + cached)


FOREIGN = ["web_search", "file_search", "image_generation", "code_interpreter", "mcp"]


@pytest.mark.parametrize("kind", FOREIGN)
def test_tools_that_do_not_run_here_are_skipped_and_named(url: str, kind: str) -> None:
    other = {"type": kind, "name": "other"}
    for route, own in (("responses", FLAT), ("chat/completions", ADD_TOOL), ("messages", ADDER)):
        alone = post(url, route, **ROUTES[route], tools=[own])
        found = post(url, route, **ROUTES[route], tools=[own, other])
        assert found.status_code == 200, found.text
        assert found.headers["x-slipstream-skipped"] == f"tools of type {kind}"
        assert "x-slipstream-skipped" not in alone.headers
        assert read_tokens(found.json()) == read_tokens(alone.json())
        only = post(url, route, **ROUTES[route], tools=[other], stream=True)
        assert only.headers["x-slipstream-skipped"] == f"tools of type {kind}"


def test_items_and_blocks_that_ran_elsewhere_are_skipped_and_named(url: str) -> None:
    items = [
        ASKED,
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"type": "mcp_list_tools", "server_label": "x", "tools": []},
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    ]
    found = post(url, "responses", input=items, max_output_tokens=4)
    assert found.status_code == 200, found.text
    assert found.headers["x-slipstream-skipped"] == (
        "items of type web_search_call, items of type mcp_list_tools"
    )
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "42"},
    ]
    told_so = [ASKED, {"role": "assistant", "content": blocks}, ASKED]
    found = post(url, "messages", **chatted(messages=told_so))
    assert found.headers["x-slipstream-skipped"] == (
        "blocks of type server_tool_use, blocks of type web_search_tool_result"
    )


def test_a_function_in_the_form_of_the_other_protocol(url: str) -> None:
    forced = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 60}
    nested, flat = (choice(url, **chatted(tools=[one], **forced)) for one in (ADD_TOOL, FLAT))
    calls = [one["message"]["tool_calls"][0]["function"] for one in (nested, flat)]
    assert calls[0] == calls[1]
    assert post(url, "responses", **ROUTES["responses"], tools=[ADD_TOOL]).status_code == 200


def test_a_long_name_of_a_tool(url: str) -> None:
    tool = {"type": "function", "function": {"name": NAME, "parameters": {"type": "object", "properties": {}}}}  # fmt: skip
    called = choice(url, **chatted(tools=[tool], tool_choice="required", max_tokens=300))
    assert called["message"]["tool_calls"][0]["function"]["name"] == NAME
    assert post(url, "chat/completions", **chatted(tools=[{"type": "function", "function": {"name": f"{NAME}a"}}])).status_code == 400  # fmt: skip


@pytest.mark.parametrize("name", ["Pocket", "pocket.gguf", "pocket:latest", "openai/pocket", "hf.co/somebody/Pocket-GGUF"])  # fmt: skip
def test_a_model_by_the_names_that_people_write(url: str, name: str) -> None:
    assert post(url, "chat/completions", **{**chatted(), "model": name}).status_code == 200


def test_a_close_name_is_proposed(url: str) -> None:
    for name in ("poket", "pocket-2", "pocke", "a/Pokket:Q4_K_M"):
        refused = post(url, "chat/completions", **{**chatted(), "model": name}).json()["error"]
        assert "did you mean 'pocket'?" in refused["message"]
        assert refused["code"] == "model_not_found"


def test_input_tokens_are_known_at_the_start(url: str) -> None:
    for fields in ({}, {"system": "Be brief."}, {"tools": [ADDER]}):
        found = events(url, "messages", **chatted(**fields))
        usage = found[0]["message"]["usage"]
        assert usage["input_tokens"] == tokens_of(url, ASKED, **fields) > 0
        last = found[-2]["usage"]
        assert last["input_tokens"] + last["cache_read_input_tokens"] == usage["input_tokens"]


def test_a_format_under_its_older_name(url: str) -> None:
    form = {"type": "json_schema", "schema": {**TWO_NUMBERS, "additionalProperties": False}}
    found = answer(url, "messages", **chatted(output_format=form, max_tokens=300))
    assert [*json.loads(found["content"][0]["text"])] == ["a", "b"]


def test_a_prompt_that_is_too_long_in_words_that_agents_know(running: Running) -> None:
    long = "word " * 2 * CONTEXT
    said = [{"role": "user", "content": long}]
    anthropics = post(running.url, "messages", messages=said, max_tokens=5)
    assert anthropics.status_code == 400
    assert anthropics.json()["error"]["message"] == "prompt is too long: 2000 tokens > 1000 maximum"
    for route, fields in (("chat/completions", {"messages": said}), ("completions", {"prompt": long}), ("responses", {"input": long})):  # fmt: skip
        for stream in (False, True):
            error = post(running.url, route, **fields, stream=stream).json()["error"]
            assert error["code"] == "context_length_exceeded"
            assert "maximum context length is 1000 tokens" in error["message"]
            assert "resulted in 2000 tokens" in error["message"]


HELLO = b64encode("Grüße aus Rom".encode()).decode()


@pytest.mark.parametrize(
    ("route", "content"),
    [
        ("chat/completions", {"type": "file", "file": {"filename": "a.txt", "file_data": HELLO}}),
        ("responses", {"type": "input_file", "filename": "a.md", "file_data": f"data:;base64,{HELLO}"}),
        ("messages", {"type": "document", "title": "a.csv", "source": {"type": "base64", "data": HELLO}}),
    ],
)  # fmt: skip
def test_a_text_file_is_read(running: Running, route: str, content: dict[str, Any]) -> None:
    field = "input" if route == "responses" else "messages"
    asked = [{"role": "user", "content": [content, {"type": "text", "text": "Where from?"}]}]
    assert post(running.url, route, **{**ROUTES[route], field: asked}).status_code == 200
    assert "Grüße aus Rom" in running.assistant.requests[-1].messages[-1].content


@pytest.mark.parametrize(
    ("data", "said"), [("%PDF-1.7", "not base64"), (b64encode(bytes(99)).decode(), "no text")]
)
def test_a_file_that_is_no_text_is_told(url: str, data: str, said: str) -> None:
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": data}}
    refused = post(url, "chat/completions", messages=[{"role": "user", "content": [part]}])
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]


@pytest.mark.parametrize("result", [{"degrees": 21}, 21, True, [{"degrees": 21}]])
def test_results_of_calls_that_are_json(running: Running, result: object) -> None:
    *before, last = story_of_a_call("c1", '{"a": 1, "b": 2}')
    answer(running.url, messages=[*before, {**last, "content": result}], max_tokens=4)
    said = running.assistant.requests[-1].messages[-1].content
    assert said == {"21": "21", "True": "true"}.get(str(result), '{"degrees": 21}')


def test_a_tool_that_is_sent_twice_is_one_tool(running: Running) -> None:
    answer(running.url, **chatted(tools=[ADD_TOOL, ADD_TOOL], tool_choice={"type": "auto"}))
    assert [tool.name for tool in running.assistant.requests[-1].tool_use.tools] == ["add"]


@pytest.mark.parametrize("word", ["any", {"type": "any"}, {"type": "required"}])
def test_words_for_a_call_that_must_be(running: Running, word: object) -> None:
    answer(running.url, **chatted(tools=[ADD_TOOL], tool_choice=word))
    assert running.assistant.requests[-1].tool_use.must_call


@pytest.mark.parametrize("name", ["files.read", "github/issues:list", "wetter_für_morgen"])
def test_names_of_tools_of_other_servers(url: str, name: str) -> None:
    tool = {"type": "function", "function": {**serving.ADD, "name": name}}
    called = choice(url, **{**chatted(tools=[tool], tool_choice="required"), "max_tokens": 300})
    assert called["message"]["tool_calls"][0]["function"]["name"] == name
