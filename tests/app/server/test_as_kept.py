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
