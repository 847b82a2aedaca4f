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
