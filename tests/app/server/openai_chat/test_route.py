"""The official client against a real server: answers, streams, failures, leaving early."""

from codecs import decode
from itertools import pairwise
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.openai_chat.answer import Offsets
from tests.app.server.fake_assistant import BUG, CRASH, FOREVER, open_fake
from tests.app.server.serving import HTTP, Running, events, serving


def create(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    """A chat completion of this one message."""
    return client.chat.completions.create(model="pocket", messages=say(text), **fields)


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_stream_says_the_same_as_the_whole_answer(client: openai.OpenAI) -> None:
    whole = create(client, "a b c d e")
    chunks = create(client, "a b c d e", stream=True)
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(parts) == whole.choices[0].message.content == "a b c d e "
    assert len([part for part in parts if part]) == 3  # a pass each


def test_answer_has_counts_times_and_what_ran(client: openai.OpenAI) -> None:
    answer = create(client, "a b c d")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 4)
    assert answer.usage.prompt_tokens_details.cached_tokens == 1
    extra: Any = answer.model_extra
    assert extra["speculation"] == {
        "drafter": "lookup",
        "reason": "the prompt repeats itself",
        "passes": 2,
        "tokens_per_pass": 2.0,
        "near_ties": 0,
    }
    assert extra["timings"] == {
        "cache_n": 1, "draft_n": 4, "draft_n_accepted": 2,
        "prompt_n": 3, "prompt_ms": 10.0, "prompt_per_token_ms": 3.333, "prompt_per_second": 300.0,
        "predicted_n": 4, "predicted_ms": 20.0, "predicted_per_token_ms": 5.0, "predicted_per_second": 200.0,
    }  # fmt: skip


def test_stream_starts_with_the_role_and_ends_with_times(running: Running) -> None:
    bodies = events(running.url, messages=say("one two three"))
    assert bodies[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    last = bodies[-1]["choices"][0]
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")
    assert bodies[-1]["timings"]["draft_n"] == 4
    assert bodies[-1]["speculation"]["drafter"] == "lookup"
    assert len({(body["id"], body["created"], body["model"]) for body in bodies}) == 1
    assert not any("usage" in body or not body["choices"] for body in bodies)


def test_log_probabilities_come_with_every_token_and_its_bytes(client: openai.OpenAI) -> None:
    asked = {"logprobs": True, "top_logprobs": 2}
    whole = create(client, "a b c", **asked).choices[0].logprobs.content
    found = [chunk.choices[0].logprobs for chunk in create(client, "a b c", **asked, stream=True)]
    assert [entry for each in found if each for entry in each.content] == whole
    assert len(whole) == 4  # two a pass
    assert (whole[0].token, whole[0].logprob, bytes(whole[0].bytes)) == ("word", -0.5, b"word")
    assert (whole[1].token, bytes(whole[1].bytes)) == ("\ufffd", "é".encode()[:1])
    assert [(top.token, top.logprob) for top in whole[0].top_logprobs] == [
        ("word", -0.5), ("\ufffd", -9999.0),
    ]  # fmt: skip
    assert create(client, "a b c").choices[0].logprobs is None


def test_usage_counts_accepted_and_rejected_predictions(client: openai.OpenAI) -> None:
    asked = {"prediction": {"type": "content", "content": "a b c d and more"}}
    whole = create(client, "a b c d", **asked)
    counted = {"stream": True, "stream_options": {"include_usage": True}}
    *_, last = create(client, "a b c d", **asked, **counted)
    for usage in (whole.usage, last.usage):
        details = usage.completion_tokens_details
        assert details.accepted_prediction_tokens == 4
        assert details.rejected_prediction_tokens == 2
    assert create(client, "a b c d").usage.completion_tokens_details is None


def test_a_completion_whole_and_streamed(client: openai.OpenAI, running: Running) -> None:
    asked: Any = {"model": "pocket", "prompt": "a b c d e", "max_tokens": 64, "temperature": 0.5}
    whole = client.completions.create(**asked)
    steps = list(client.completions.create(**asked, stream=True))
    assert "".join(step.choices[0].text for step in steps) == whole.choices[0].text == "a b c d e "
    assert [step.choices[0].finish_reason for step in steps] == [None, None, None, "stop"]
    assert whole.object == steps[0].object == "text_completion"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    assert (whole.model_extra or {})["speculation"]["drafter"] == "lookup"
    [turn, _] = running.assistant.requests
    assert (turn.text, turn.messages, turn.sampling.temperature) == ("a b c d e", (), 0.5)


def test_a_completion_has_16_tokens_by_default(client: openai.OpenAI, running: Running) -> None:
    for asked in ({}, {"max_tokens": None}):
        client.completions.create(model="pocket", prompt="a b", **asked)
    assert [turn.max_tokens for turn in running.assistant.requests] == [16, 16]


def test_log_probabilities_of_a_completion_are_columns(client: openai.OpenAI) -> None:
    asked: Any = {"model": "pocket", "prompt": "one two three", "max_tokens": 64, "logprobs": 2}
    columns = client.completions.create(**asked).choices[0].logprobs
    assert columns is not None
    assert columns.tokens == ["word", "\N{REPLACEMENT CHARACTER}"] * 2
    assert columns.token_logprobs == [-0.5] * 4
    assert columns.text_offset == [13, 17, 18, 22]
    assert columns.top_logprobs is not None
    assert columns.top_logprobs[0] == {"word": -0.5, "\N{REPLACEMENT CHARACTER}": -9999.0}
    streamed = list(client.completions.create(**asked, stream=True))
    assert [s.choices[0].logprobs is not None for s in streamed] == [True, True, False]
    parts = [step.choices[0].logprobs.text_offset for step in streamed[:2]]
    assert [at for part in parts for at in part] == columns.text_offset


@pytest.mark.parametrize(
    ("route", "field"), [("chat/completions", "messages"), ("completions", "prompt")]
)
def test_usage_is_a_chunk_of_its_own(running: Running, route: str, field: str) -> None:
    text: Any = "one two three" if field == "prompt" else say("one two three")
    asked = {field: text, "stream_options": {"include_usage": True}}
    *others, last = events(running.url, route, **asked)
    assert all(body["usage"] is None and body["choices"] for body in others)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 6


def test_max_completion_tokens_wins_and_length_is_the_reason(client: openai.OpenAI) -> None:
    answer = create(client, "a b c d e f", max_tokens=6, max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == "a b "


def test_extra_fields_reach_the_engine(client: openai.OpenAI, running: Running) -> None:
    client.chat.completions.create(
        model="pocket",
        messages=[{"role": "developer", "content": "Be brief."}, *say("hi there")],
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop="\n",
        extra_body={"top_k": 40, "min_p": 0.1, "drafter": "none", "who_knows": {"what": 1}},
    )
    [turn] = running.assistant.requests
    assert [message.role for message in turn.messages] == ["system", "user"]
    assert (turn.sampling.top_k, turn.sampling.min_p, turn.sampling.top_p) == (40, 0.1, 0.9)
    assert (turn.sampling.temperature, turn.sampling.seed) == (0.5, 7)
    assert (turn.stop, turn.drafter) == (("\n",), "none")


def test_the_model_is_listed_and_another_is_not_found(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("pocket", "model", "local")
    assert client.models.retrieve("pocket").id == "pocket"
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=say("hi"))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="'pocket'"):
        client.models.retrieve("gpt-9")


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_past_the_context_names_both_numbers(client: openai.OpenAI, stream: bool) -> None:
    fields: Any = {"model": "pocket", "stream": stream}
    for ask, field, long in (
        (client.chat.completions.create, "messages", say("w " * 1100)),
        (client.completions.create, "prompt", "w " * 1100),
    ):
        with pytest.raises(openai.BadRequestError, match=r"1000 tokens.* 1100 tokens") as caught:
            ask(**fields, **{field: long})
        assert (caught.value.param, caught.value.code) == (field, "context_length_exceeded")


def test_drafter_that_cannot_run_is_refused_with_the_reason(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no draft"):
        create(client, "hi", extra_body={"drafter": "chain"})


@pytest.mark.parametrize(("said", "words"), [(CRASH, "process ended"), (BUG, "log of the server")])
def test_failure_in_a_stream_is_an_event(
    running: Running, client: openai.OpenAI, said: str, words: str
) -> None:
    *_, last = events(running.url, messages=say(said))
    assert words in last["error"]["message"]
    assert "secrets" not in str(last)
    with pytest.raises(openai.APIError, match=words):
        list(create(client, said, stream=True))


def test_failure_of_a_whole_answer_is_not_to_be_repeated(client: openai.OpenAI) -> None:
    patient = client.with_options(max_retries=2)
    with pytest.raises(openai.InternalServerError, match="process ended") as caught:
        create(patient, CRASH)
    assert caught.value.response.headers["x-should-retry"] == "false"


def read_until_timeout(running: Running, body: dict[str, Any]) -> None:
    url = f"{running.url}/v1/chat/completions"
    with HTTP.stream("POST", url, json=body, timeout=0.3) as response:
        for _ in response.iter_lines():
            assert not running.assistant.ended.is_set()
            running.assistant.pause = 1.0  # the pass during which the client leaves


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_ends_its_answer(running: Running, stream: bool) -> None:
    with pytest.raises(httpx.ReadTimeout):
        read_until_timeout(running, {"model": "pocket", "messages": say(FOREVER), "stream": stream})
    assert running.assistant.ended.wait(0.5)


def test_server_stops_while_an_answer_runs() -> None:
    body = {"model": "pocket", "messages": say(FOREVER), "stream": True}
    with serving(open_fake) as running:
        url = f"{running.url}/v1/chat/completions"
        with HTTP.stream("POST", url, json=body) as response:
            next(response.iter_lines())
            running.server.stop()
            assert running.assistant.ended.wait(5)


TEXTS = st.text("aé日😀\N{REPLACEMENT CHARACTER}", max_size=8)


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(whole) + 1) for place in places}), len(whole)]
    return [whole[a:b] for a, b in pairwise(edges) if a < b]


@given(TEXTS, st.lists(st.integers(0, 40)), st.integers(0, 9))
def test_law_offset_is_the_first_bytes_character(text: str, places: list[int], start: int) -> None:
    of_bytes = [at for at, character in enumerate(text) for _ in character.encode()]
    offsets, done = Offsets(start), 0
    for token in cut(text.encode(), places):
        assert offsets.next(token) == start + of_bytes[done]
        done += len(token)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([b"a", b"\xf0\x9f", b"\x98\x80", b"b"], [0, 1, 1, 2]),  # it was counted twice
        ([b"\xc3", b"word", b"\xc3", b"\xc3", b"\xa9", b""], [0, 1, 5, 6, 6, 7]),  # broken off
        ([b"\xff", b"\xe0", b"\x80", b"a"], [0, 1, 2, 3]),
    ],
)
def test_a_broken_character_counts_as_one(tokens: list[bytes], expected: list[int]) -> None:
    offsets = Offsets(0)
    assert [offsets.next(token) for token in tokens] == expected
    assert expected[-1] < len(decode(b"".join(tokens), errors="replace")) + 1
