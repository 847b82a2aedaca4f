"""Bodies of requests: what is refused, with which words, and what passes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.request import Message
from app.server.openai_chat.schemas import ChatBody, CompletionBody
from app.server.request_body import MOST_MESSAGES
from engine.request import Penalties
from tests.app.server.serving import HTTP, JSON_HEADERS, Running, post

HI = [{"role": "user", "content": "hi"}]


def parsed(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"model": "pocket", "messages": HI, **fields})


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


@pytest.mark.parametrize("seed", [2**63, -2, -(2**63), 2**64 + 7])
def test_numbers_that_are_no_seed_stand_for_one(seed: int) -> None:
    found = parsed(seed=seed).sampling.seed
    assert found is not None
    assert 0 <= found < 2**63
    assert parsed(seed=seed).sampling.seed == found


def test_nothing_asked_for_is_greedy() -> None:
    assert parsed().sampling.greedy


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
        ("echo", True),  # a field of completions, as the next one
        ("suffix", "end"),
        *[(name, None) for name in ("temperature", "stop", "max_tokens")],
    ],
)
def test_values_that_change_nothing_pass(name: str, value: object) -> None:
    assert parsed(**{name: value}).chat_request == parsed().chat_request


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("temperature", bad) for bad in (-0.1, 2.1, "hot", True)],
        *[("top_p", bad) for bad in (-0.1, 1.5)],
        *[("min_p", bad) for bad in (-0.1, 1.1)],
        *[("top_k", bad) for bad in (-2, 2**31, 1.5, "3", True)],
        *[("presence_penalty", bad) for bad in (-2.1, 2.1, "much")],
        *[("frequency_penalty", bad) for bad in (-2.1, True)],
        *[("repeat_penalty", bad) for bad in (0, -1, 101)],
        *[("logit_bias", bad) for bad in ({"1": 101}, {"a": 1}, {"-1": 1}, {"1": "x"}, [1])],
        *[("seed", bad) for bad in (1.5, "3", True)],
        *[("max_tokens", bad) for bad in (0, -2, 2**31, 2**63, 1.5, "3", True)],
        *[("max_completion_tokens", bad) for bad in (0, True)],
        *[("n", bad) for bad in (0, -1, 17, 1.5, True, "2")],
        *[("stop", bad) for bad in ("x" * 4097, [1], 1)],
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
        *[("model", bad) for bad in (1, ["pocket"])],
        *[("messages", bad) for bad in ([], "hi", None, {}, [1], [None], HI * (MOST_MESSAGES + 1))],
    ],
)
def test_wrong_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        parsed(**{name: value})
    assert {error["loc"][0] for error in caught.value.errors()} == {name}


def test_a_prediction_is_a_text_or_parts_of_one() -> None:
    parts = [{"type": "text", "text": "def "}, {"type": "text", "text": "f():"}]
    for content, text in ((parts, "def f():"), ("def f():", "def f():"), ("", "")):
        asked = parsed(prediction={"type": "content", "content": content})
        assert asked.chat_request.prediction == text


@pytest.mark.parametrize(
    ("body", "many"),
    [({}, None), ({"logprobs": False, "top_logprobs": 0}, None), ({"logprobs": True}, 0),
     ({"logprobs": True, "top_logprobs": 20}, 20)],
)  # fmt: skip
def test_number_of_log_probabilities(body: dict[str, object], many: int | None) -> None:
    assert parsed(**body).chat_request.logprobs == many


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_not_finite_are_refused(running: Running, value: str) -> None:
    for name in ("temperature", "top_p", "min_p", "top_k"):
        body = f'{{"model": "pocket", "messages": [{{"role": "user", "content": "hi"}}], "{name}": {value}}}'
        url = f"{running.url}/v1/chat/completions"
        response = HTTP.post(url, content=body, headers=JSON_HEADERS)
        assert response.status_code == 400, name
        assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (b'{"model": "pocket"}', {}, "send the header Content-Type: application/json"),
        (b"model=pocket", {"content-type": "application/x-www-form-urlencoded"}, "send the header"),
        (b"", JSON_HEADERS, "the request has no body; send a JSON object"),
        (b"", {}, "the request has no body"),
        *[(body, JSON_HEADERS, "the body must be a JSON object") for body in (b"[]", b'"hi"', b"5")],
        (b"null", JSON_HEADERS, "the request has no body"),
        ('{"a": "é"}'.encode("latin-1"), JSON_HEADERS, "the body is not UTF-8: byte 8 is not"),
        (b"\xff", JSON_HEADERS, "the body is not UTF-8"),
        (b'{"model": 3', JSON_HEADERS, "the body is not JSON: expecting ',' delimiter at character 11"),
        (b'{"model": "po', JSON_HEADERS, "the body is not JSON: unterminated string starting at character 10"),
        (b"{", JSON_HEADERS, "the body is not JSON"),
        (b"[" * 50_000, JSON_HEADERS, ""),
        (b'{"model": "pocket"}', JSON_HEADERS, ""),
    ],
)  # fmt: skip
def test_wrong_bodies_are_refused(
    running: Running, body: bytes, headers: dict[str, str], words: str
) -> None:
    for route in ("chat/completions", "completions", "responses", "messages"):
        response = HTTP.post(f"{running.url}/v1/{route}", content=body, headers=headers)
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]
        assert {"message", "type", "param", "code"} <= set(response.json()["error"])


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
def test_half_a_character_is_refused_anywhere(
    running: Running, route: str, body: dict[str, Any], stream: bool
) -> None:
    """The sentence that refused it could not be sent, and metadata with it tore the answer."""
    response = post(running.url, route, stream=stream, **body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]
    assert running.assistant.requests == []


def test_the_beginning_of_an_answer_is_its_prefix() -> None:
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


def test_a_prompt_may_be_a_list_of_one() -> None:
    assert text(["go on"]).chat_request == text("go on").chat_request
    assert text("  ").chat_request.text == "  "
