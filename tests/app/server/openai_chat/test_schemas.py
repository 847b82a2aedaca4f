"""Bodies of requests: what is refused, with which words, and what passes."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from app.request import Message
from app.server.app import create_app
from app.server.openai_chat.schemas import ChatBody, CompletionBody
from engine.drafters import DRAFTERS
from engine.request import Penalties
from tests.app.server.conftest import Running
from tests.app.server.fake_assistant import FakeAssistant

HI = [{"role": "user", "content": "hi"}]
JSON_HEADERS = {"content-type": "application/json"}


def parsed(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "pocket", "messages": HI, **fields})


def post(running: Running, **body: Any) -> httpx.Response:
    return httpx.post(f"{running.url}/v1/chat/completions", **body)


@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text() | st.none(), max_size=3))
def test_law_unknown_fields_change_nothing(fields: dict[str, Any]) -> None:
    unknown = {f"x-{name}": value for name, value in fields.items()}
    assert parsed(**unknown).chat_request == parsed().chat_request


@given(st.floats(0, 2), st.floats(0, 1, exclude_min=True), st.integers(0, 2**31 - 1))
def test_law_sampling_arrives_unchanged(temperature: float, top_p: float, top_k: int) -> None:
    sampling = parsed(temperature=temperature, top_p=top_p, top_k=top_k).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (temperature, top_p, top_k)


def test_penalties_arrive_under_the_names_that_programs_have_for_them() -> None:
    asked = parsed(presence_penalty=0.5, frequency_penalty=-1, logit_bias={"7": -100, "9": 2.5})
    assert asked.sampling.penalties == Penalties(0.5, -1, bias=((7, -100), (9, 2.5)))
    for name in ("repeat_penalty", "repetition_penalty"):
        assert parsed(**{name: 1.1}).sampling.penalties == Penalties(repeat=1.1)


def test_nothing_asked_for_is_greedy() -> None:
    assert parsed().sampling.greedy
    assert (
        parsed(temperature=None, stop=None, max_tokens=None).chat_request == parsed().chat_request
    )


def test_parts_of_text_are_joined() -> None:
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "hi"}]
    assert parsed(messages=[{"role": "user", "content": parts}]).chat_request.messages == (
        Message("user", "Say hi"),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1),
        ("tools", []),
        ("tool_choice", "auto"),
        ("logprobs", False),
        ("response_format", {"type": "text"}),
        ("presence_penalty", 0),
        ("frequency_penalty", 0.0),
        ("logit_bias", {}),
        ("repeat_penalty", 1.0),
        ("repetition_penalty", 1),
        ("prediction", None),
        ("modalities", ["text"]),
    ],
)
def test_values_that_change_nothing_pass(name: str, value: object) -> None:
    assert parsed(**{name: value}).chat_request == parsed().chat_request


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("best_of", 2, "send n to get several"),
        ("functions", [{"name": "f"}], "older name of tools"),
        ("function_call", {"name": "f"}, "older name of tools"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(
    running: Running, name: str, value: object, told: str
) -> None:
    response = post(running, json={"model": "pocket", "messages": HI, name: value})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, name, "unsupported")
    assert told in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("temperature", bad) for bad in (-0.1, 2.1, "hot", True)],
        *[("top_p", bad) for bad in (0, 1.5)],
        *[("min_p", bad) for bad in (-0.1, 1)],
        *[("top_k", bad) for bad in (-1, 2**31, 1.5, "3", True)],
        *[("presence_penalty", bad) for bad in (-2.1, 2.1, "much")],
        *[("frequency_penalty", bad) for bad in (-2.1, True)],
        *[("repeat_penalty", bad) for bad in (0, -1, 101)],
        *[("logit_bias", bad) for bad in ({"1": 101}, {"a": 1}, {"-1": 1}, {"1": "x"}, [1])],
        *[("seed", bad) for bad in (2**63, 1.5, "3", True)],
        *[("max_tokens", bad) for bad in (0, -1, 2**31, 2**63, 1.5, "3", True)],
        *[("max_completion_tokens", bad) for bad in (0, True)],
        *[("stop", bad) for bad in (["a"] * 5, [""], "", "x" * 257, [1], 1)],
        *[("stream", bad) for bad in ("yes", 1)],
        *[("logprobs", bad) for bad in (5, "yes")],
        *[("top_logprobs", bad) for bad in (-1, 21, "3", True, 3)],  # 3: without logprobs
        ("stream_options", {"include_usage": "yes"}),
        *[
            ("prediction", bad)
            for bad in ("x", {"type": "content"}, {"type": "file", "content": "x"})
        ],
        *[
            ("response_format", bad)
            for bad in ("json", {}, {"type": "xml"}, {"type": "json_schema", "json_schema": 1})
        ],
        *[("json_schema", bad) for bad in ("x", [], True)],
        *[("tools", bad) for bad in ("x", [1], [{}], [{"type": "function"}])],
        *[("tool_choice", bad) for bad in ("must", 1, {}, {"type": "function"})],
        ("parallel_tool_calls", "yes"),
        *[("drafter", bad) for bad in ("warp", "", None, 1)],
        *[("model", bad) for bad in (None, 1, ["pocket"])],
        *[("messages", bad) for bad in ([], "hi", None, {}, [1], [None], HI * 1001)],
    ],
)
def test_wrong_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        parsed(**{name: value})
    assert {error["loc"][0] for error in caught.value.errors()} == {name}


def test_what_is_no_prediction_is_told_what_one_looks_like(running: Running) -> None:
    asked = {"model": "pocket", "messages": HI, "prediction": "x"}
    error = post(running, json=asked).json()["error"]
    assert error["param"] == "prediction"
    assert '{"type": "content", "content": "..."}' in error["message"]


def test_a_prediction_is_a_text_or_parts_of_one() -> None:
    parts = [{"type": "text", "text": "def "}, {"type": "text", "text": "f():"}]
    for content in (parts, "def f():"):
        assert (
            parsed(prediction={"type": "content", "content": content}).chat_request.prediction
            == "def f():"
        )
    assert (
        parsed(prediction={"type": "content", "content": ""}).chat_request == parsed().chat_request
    )


@pytest.mark.parametrize(
    ("body", "many"),
    [({}, None), ({"logprobs": False, "top_logprobs": 0}, None), ({"logprobs": True}, 0),
     ({"logprobs": True, "top_logprobs": 20}, 20)],
)  # fmt: skip
def test_log_probabilities_are_told_of_as_many_tokens_as_were_asked_for(
    body: dict[str, object], many: int | None
) -> None:
    assert parsed(**body).chat_request.logprobs == many


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_drafter_can_be_asked_for(drafter: str) -> None:
    assert parsed(drafter=drafter).chat_request.drafter == drafter


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "user", "content": ""}, "empty"),
        ({"role": "user", "content": " \n\t"}, "empty"),
        ({"role": "user", "content": None}, "empty"),
        ({"role": "user", "content": []}, "empty"),
        ({"role": "user"}, "empty"),
        ({"role": "robot", "content": "hi"}, "'user'"),
        ({"content": "hi"}, "required"),
        ({"role": "user", "content": 5}, "string"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "image_url"),
        ({"role": "user", "content": [{"text": "hi"}]}, '{"type": "text"'),
        ({"role": "user", "content": "\ud800"}, "surrogate"),
    ],
)
def test_wrong_messages_are_refused(running: Running, message: object, told: str) -> None:
    body = json.dumps({"model": "pocket", "messages": [message]})
    response = post(running, content=body, headers=JSON_HEADERS)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("messages")
    assert told in response.json()["error"]["message"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "top_k"])
def test_numbers_that_are_none_are_refused(running: Running, name: str, value: str) -> None:
    body = f'{{"model": "pocket", "messages": [{{"role": "user", "content": "hi"}}], "{name}": {value}}}'
    response = post(running, content=body, headers=JSON_HEADERS)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    ['"hi"', "[]", "5", "null", "{", "", b"\xff", "[" * 50_000, '{"model": "pocket"}'],
)
def test_bodies_that_are_no_request_are_refused(running: Running, body: str | bytes) -> None:
    response = post(running, content=body, headers=JSON_HEADERS)
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "headers", "said"),
    [
        (b'{"model": "pocket"}', {}, "send the header Content-Type: application/json"),
        (b"model=pocket", {"content-type": "application/x-www-form-urlencoded"}, "send the header"),
        (b"", JSON_HEADERS, "the request has no body; send a JSON object"),
        (b"", {}, "the request has no body"),
        (b"[]", JSON_HEADERS, "the body must be a JSON object"),
        ('{"a": "é"}'.encode("latin-1"), JSON_HEADERS, "the body is not UTF-8: byte 8 is not"),
    ],
)
def test_a_body_that_is_no_object_is_told_what_it_is(
    running: Running, body: bytes, headers: dict[str, str], said: str
) -> None:
    for route in ("chat/completions", "completions", "responses", "messages"):
        response = httpx.post(f"{running.url}/v1/{route}", content=body, headers=headers)
        assert response.status_code == 400
        assert said in response.json()["error"]["message"]


HALF = "\ud800"


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": HALF}]}]}),
        ("chat/completions", {"messages": HI, "drafter": HALF}),
        ("chat/completions", {"messages": HI, "json_schema": {"type": HALF}}),
        ("responses", {"input": [{"type": HALF}]}),
        ("responses", {"input": [{"role": "user", "content": [{"type": HALF}]}]}),
        ("responses", {"input": "hi", "tools": [{"type": HALF}]}),
        ("responses", {"input": "hi", "metadata": {"a": HALF}}),
        ("responses", {"input": "hi", "metadata": {HALF: "a"}}),
        ("messages", {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": HALF}]}]}),
        ("messages", {"max_tokens": 5, "messages": HI, "tools": [{"type": HALF}]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_half_a_character_is_refused_wherever_it_stands(
    running: Running, route: str, body: dict[str, Any], stream: bool
) -> None:
    """The sentence that refused it could not be sent, and metadata with it tore the answer."""
    sent = json.dumps({"model": "pocket", "stream": stream, **body})
    response = httpx.post(f"{running.url}/v1/{route}", content=sent, headers=JSON_HEADERS)
    assert response.status_code == 400
    assert response.json()["error"]["message"]
    assert running.assistant.requests == []


def test_without_the_prefix_a_wrong_method_is_told_before_any_page() -> None:
    """The page that is mounted beside the routes took the request, and knew nothing of it."""
    app = create_app(FakeAssistant())
    app.mount("/", PlainTextResponse("the page"))
    with TestClient(app, "http://localhost") as client:
        for method, path in [("PUT", "/health"), ("GET", "/responses"), ("POST", "/models/pocket")]:
            response = client.request(method, path)
            assert (response.status_code, response.json()["error"]["code"]) == (
                405,
                "method_not_allowed",
            )
            assert response.headers["allow"]
        assert client.get("/anything").text == "the page"
        assert client.post("/anything").text == "the page"
        assert client.get("/models").json() == client.get("/v1/models").json()


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_health_is_asked_without_a_body_too(running: Running, prefix: str) -> None:
    """Programs that watch servers ask with HEAD."""
    whole = httpx.get(f"{running.url}{prefix}/health")
    head = httpx.head(f"{running.url}{prefix}/health")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    assert httpx.head(f"{running.url}{prefix}/models").status_code == 405


def test_any_route_and_method_answers_in_the_same_shape(running: Running) -> None:
    for method, path, status in [
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/models/pocket", 405),
    ]:
        response = httpx.request(method, f"{running.url}{path}")
        assert response.status_code == status, path
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_an_answer_that_is_begun_is_told_apart_from_what_was_said() -> None:
    begun = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well"}]
    body = {"model": "pocket", "messages": begun}
    turn = ChatBody.model_validate({**body, "continue_final_message": True}).chat_request
    assert ([one.role for one in turn.messages], turn.prefix) == (["user"], "Well")
    assert ChatBody.model_validate(body).chat_request.prefix == ""
    for messages in (begun[:1], begun[1:]):
        with pytest.raises(ValidationError, match="the beginning of an answer"):
            ChatBody.model_validate({**body, "messages": messages, "continue_final_message": True})


def text(prompt: Any, **fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"model": "pocket", "prompt": prompt, **fields})


def test_a_text_may_stand_alone_or_in_a_list() -> None:
    assert text(["go on"]).chat_request == text("go on").chat_request
    assert text("  ").chat_request.text == "  "


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": None}, "valid string"),
        ({"prompt": [1, 2]}, "send the prompt as text, not as token ids"),
        ({"prompt": [[1], [2]]}, "send the prompt as text, not as token ids"),
        ({"prompt": ["a", "b"]}, "send one prompt per request"),
        ({"prompt": "\ud800"}, "half of a surrogate pair"),
        ({"prompt": "a", "echo": True}, "the answer comes without the prompt"),
        ({"prompt": "a", "suffix": "b"}, "the middle of a file"),
        ({"prompt": "a", "best_of": 2}, "send n to get several"),
        ({"prompt": "a", "logprobs": 21}, "less than or equal to 20"),
        ({"prompt": "a", "drafter": "warp"}, "warp"),
        ({}, "required"),
    ],
)
def test_what_no_text_can_be_made_of_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CompletionBody.model_validate({"model": "pocket", **body})


def test_what_belongs_to_a_text_changes_no_chat() -> None:
    assert parsed(echo=True, suffix="end").chat_request == parsed().chat_request
