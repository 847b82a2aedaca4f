"""What programs keep and put together: addresses, histories of other servers, words of other protocols."""

from typing import Any

import pytest

from tests.app.server import serving
from tests.app.server.serving import ADD_TOOL, HTTP, SUM, TWO_NUMBERS, Running, answer, post

ASKED = {"role": "user", "content": SUM}
SAID = {"role": "assistant", "content": "42"}
ADDER = {"name": "add", "input_schema": TWO_NUMBERS}
FLAT = {"type": "function", **serving.ADD}
FIELDS = {"chat/completions": "messages", "responses": "input", "messages": "messages"}


def sent(running: Running, route: str, story: list[Any], **fields: Any) -> Any:
    """The response to a conversation."""
    limit = {} if route == "responses" else {"max_tokens": 4}
    return post(running.url, route, **{FIELDS[route]: story}, **limit, **fields)


def read(running: Running, route: str, story: list[Any], **fields: Any) -> Any:
    """The request that the assistant got."""
    found = sent(running, route, story, **fields)
    assert found.status_code == 200, found.text
    return running.assistant.requests[-1]


@pytest.mark.parametrize(
    "path", ["/v1/models/", "//v1/models", "/v1//models", "/v1/v1/models", "//models", "/v1/models//"]
)  # fmt: skip
def test_an_address_that_ends_in_a_slash_or_in_v1(running: Running, path: str) -> None:
    found = HTTP.get(f"{running.url}{path}")
    assert found.json()["object"] == "list", found.text
    asked = HTTP.post(
        f"{running.url}{path.replace('models', 'chat/completions')}", json={"messages": [ASKED]}
    )
    assert asked.json()["object"] == "chat.completion", asked.text


@pytest.mark.parametrize("path", ["/v1x/models", "/v1/v2/models", "/v1/chat//models"])
def test_other_addresses_are_unknown(running: Running, path: str) -> None:
    assert HTTP.get(f"{running.url}{path}").status_code == 404


IMAGES = {
    "chat/completions": {"type": "image_url", "image_url": {"url": "data:,"}},
    "responses": {"type": "input_image", "image_url": "data:,"},
    "messages": {"type": "image", "source": {"type": "base64", "data": "x"}},
}


@pytest.mark.parametrize("route", IMAGES)
def test_an_image_of_an_earlier_message_is_a_sentence(running: Running, route: str) -> None:
    """Refused, it would end the conversation: the program sends it again with every question."""
    shown = {"role": "user", "content": [{"type": "text", "text": "Look. "}, IMAGES[route]]}
    for later in ([ASKED], [SAID, ASKED]):
        found = sent(running, route, [shown, *later])
        assert found.headers["x-slipstream-skipped"] == f"parts of type {IMAGES[route]['type']}"
        first = running.assistant.requests[-1].messages[0].content
        assert first == "Look. (an image was here; this model reads text only)"
    assert sent(running, route, [SAID, shown]).status_code == 400


@pytest.mark.parametrize("part", [{"type": "input_audio", "input_audio": {}}, {"type": "video_url"}, {"type": "file", "file": {"file_id": "f"}}])  # fmt: skip
def test_any_other_part_of_an_earlier_message_is_one_too(running: Running, part: Any) -> None:
    messages = [{"role": "user", "content": [part]}, SAID, ASKED]
    first = read(running, "chat/completions", messages).messages[0].content
    assert first == f"(a part of type {part['type']} was here; this model reads text only)"


EMPTY = [{"role": "assistant", "content": content} for content in ("", " \n", [], None)]


@pytest.mark.parametrize("last", EMPTY)
@pytest.mark.parametrize("route", FIELDS)
def test_a_place_for_the_next_answer_is_no_answer(running: Running, route: str, last: Any) -> None:
    for story in ([ASKED, last], [ASKED, SAID, ASKED, last, last]):
        found = read(running, route, story)
        assert [one.content for one in found.messages] == [
            one["content"] for one in story if one not in EMPTY
        ]
        assert found.prefix == ""


@pytest.mark.parametrize("content", ["", None, [], " "])
def test_instructions_may_say_all(running: Running, content: Any) -> None:
    system = {"role": "system", "content": SUM}
    found = read(running, "chat/completions", [system, {"role": "user", "content": content}])
    assert [(one.role, one.content) for one in found.messages] == [("system", SUM)]
    story = [system, ASKED, SAID, {"role": "user", "content": content}]
    assert sent(running, "chat/completions", story).status_code == 400


@pytest.mark.parametrize("route", FIELDS)
def test_an_answer_without_a_content_in_between(running: Running, route: str) -> None:
    nothing = {"role": "assistant", "content": None}
    assert len(read(running, route, [ASKED, nothing, ASKED]).messages) == 3


@pytest.mark.parametrize("name", ["", None])
def test_a_call_whose_name_was_cut_off(running: Running, name: Any) -> None:
    called = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": "no such tool"}
    chat = [ASKED, {"role": "assistant", "content": None, "tool_calls": [called]}, result]
    item = {"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "no such tool"}
    for route, story in (("chat/completions", chat), ("responses", [ASKED, item, output])):
        assert read(running, route, story).messages[1].calls[0].name == "unknown"


def test_a_long_story_with_many_tools_and_calls(running: Running) -> None:
    calls = [{"id": f"c{n}", "function": {"name": "add", "arguments": "{}"}} for n in range(150)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "1"} for n in range(150)]
    long = [
        *[ASKED, SAID] * 20,
        {"role": "assistant", "tool_calls": calls},
        *results,
        *[SAID] * 900,
    ]
    tools = [{"type": "function", "function": {"name": f"f{n}"}} for n in range(150)]
    found = sent(running, "chat/completions", [*long, ASKED], tools=tools)
    assert found.status_code == 200 or found.json()["error"]["code"] == "context_length_exceeded"


CHOICES: list[Any] = [
    {"type": "function", "function": {"name": "add"}},
    {"type": "function", "name": "add"},
    {"type": "tool", "name": "add"},
    {"function": {"name": "add"}},
    {"type": "allowed_tools", "mode": "required", "tools": [FLAT]},
    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [ADD_TOOL]}},
    "required",
    "any",
    {"type": "required"},
]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_in_the_words_of_any_protocol(running: Running, choice: Any) -> None:
    for route, tool in (("chat/completions", ADD_TOOL), ("responses", FLAT)):
        use = read(running, route, [ASKED], tools=[tool], tool_choice=choice).tool_use
        assert use.must_call
    if "allowed_tools" not in str(choice) and choice != {"function": {"name": "add"}}:
        assert read(
            running, "messages", [ASKED], tools=[ADDER], tool_choice=choice
        ).tool_use.must_call


@pytest.mark.parametrize("tool", [ADD_TOOL, FLAT, ADDER, {**ADDER, "type": "custom"}])
def test_a_tool_in_the_form_of_any_protocol(running: Running, tool: Any) -> None:
    for route in FIELDS if tool in (ADD_TOOL, ADDER) else ("chat/completions", "responses"):
        (found,) = read(running, route, [ASKED], tools=[tool]).tool_use.tools
        assert found.name == "add"
        assert found.parameters == TWO_NUMBERS


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("route", "tool", "choice"),
    [
        ("messages", SEARCH, {"type": "tool", "name": "web_search"}),
        ("responses", {"type": "web_search"}, {"type": "web_search"}),
        ("chat/completions", {"type": "code_interpreter"}, {"type": "code_interpreter"}),
    ],
)
def test_a_choice_of_a_tool_that_was_skipped_is_none(running: Running, route: str, tool: Any, choice: Any) -> None:  # fmt: skip
    own = {"messages": ADDER, "responses": FLAT}.get(route, ADD_TOOL)
    assert read(running, route, [ASKED], tools=[tool], tool_choice=choice).tool_use is None
    use = read(running, route, [ASKED], tools=[tool, own], tool_choice=choice).tool_use
    assert not use.must_call
    refused = sent(running, route, [ASKED], tools=[own], tool_choice=choice)
    assert refused.status_code == 400


@pytest.mark.parametrize("about", [{}, {"name": "x"}, {"name": "x", "strict": True, "description": "d"}])  # fmt: skip
def test_a_schema_one_level_too_high(running: Running, about: dict[str, Any]) -> None:
    """It was taken for no schema, and the answer could be any object."""
    form = {"type": "json_schema", "json_schema": {**about, **TWO_NUMBERS}}
    assert read(running, "chat/completions", [ASKED], response_format=form).schema == TWO_NUMBERS
    nothing = {"type": "json_schema", "json_schema": about}
    found = read(running, "chat/completions", [ASKED], response_format=nothing)
    assert found.schema == {"type": "object"}


@pytest.mark.parametrize(
    ("given", "bias"),
    [([], ()), ([[7, 1.5], [9, -2]], ((7, 1.5), (9, -2.0))), ([[7, False]], ((7, -100.0),))],
)
def test_biases_as_pairs(running: Running, given: Any, bias: Any) -> None:
    penalties = read(running, "chat/completions", [ASKED], logit_bias=given).sampling.penalties
    assert (() if penalties is None else penalties.bias) == bias


def test_a_response_has_the_fields_that_strict_programs_ask_for(running: Running) -> None:
    found = answer(running.url, "responses", input=SUM, reasoning={"effort": "low"})
    assert found["reasoning"] == {"effort": "low", "summary": None}
    usual = {"background": False, "service_tier": "default", "max_tool_calls": None}
    assert {name: found[name] for name in usual} == usual
    assert {"presence_penalty", "frequency_penalty", "safety_identifier", "prompt_cache_key"} <= {*found}  # fmt: skip
