"""Engines that answer something else than was asked for: an error in its own words, or the answer."""

import json
import time
from pathlib import Path

import httpx
import openai
import pytest

from app.chat.remote.engines import RemoteEngines
from app.remote_engine import RemoteEngine
from tests.app.asynchronous import asynchronous
from tests.app.remote import faults
from tests.app.remote.far import KEY, LOCAL, NAME, Far, ours, whole
from tests.app.remote.faults import Fault
from tests.app.remote.faulty import (
    HI,
    PATIENCE,
    Form,
    answered,
    both_forms,
    direct,
    says,
    spoilt,
)
from tests.app.remote.stub import MODEL, MODELS, Stub
from tests.app.remote.stub import engine as stub_engine

# --- what it answers instead ----------------------------------------------------------------------------


@both_forms
def test_a_key_that_it_refuses(faulty: Far, stub: Stub, form: Form) -> None:
    with stub.spoiling(says(401, f"Incorrect API key provided: {KEY}.")):
        error = spoilt(faulty, form)
    assert error.status_code in (401, 502)
    assert "key" in error.message
    assert len(stub.asked) == 1


@both_forms
def test_too_many_requests(faulty: Far, stub: Stub, form: Form) -> None:
    with stub.spoiling(says(429, "the queue is full", retry_after="7")):
        error = spoilt(faulty, form)
    assert isinstance(error, openai.RateLimitError)
    assert "the queue is full" in error.message
    assert error.response.headers["retry-after"] == "7"
    assert len(stub.asked) == 1


@both_forms
@pytest.mark.parametrize("status", [400, 404, 422, 500, 503, 504])
def test_its_own_words_are_kept(faulty: Far, stub: Stub, form: Form, status: int) -> None:
    with stub.spoiling(says(status, "no such adapter")):
        error = spoilt(faulty, form)
    assert "no such adapter" in error.message
    assert error.status_code == (502 if status >= 500 else status)
    assert len(stub.asked) == (2 if status == 503 else 1)


# As vLLM, SGLang, llama-server and OpenAI write it, with the two numbers; the last tells one only.
TOO_LONG = [
    ("This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=2049)", (2049, 2048)),
    ("The input (9001 tokens) is longer than the model's context length (4096 tokens).", (9001, 4096)),
    ("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 4200 tokens: 200 tokens from the input messages and 4000 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.", (4200, 4096)),
    ("Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter input or enable --allow-auto-truncate.", (5000, 4090)),
    ("request (6005 tokens) exceeds the available context size (2048 tokens), try increasing it", (6005, 2048)),
    ("This model's maximum context length is 4096 tokens. However, your messages resulted in 4567 tokens. Please reduce the length of the messages.", (4567, 4096)),
    ("This model's maximum context length is 2048 tokens. However, your prompt contains 900000 characters (more than 20480 characters, which is the upper bound for 2048 input tokens). Please reduce the length of the input prompt.", (2048,)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "numbers"), TOO_LONG)
def test_a_prompt_that_is_too_long_in_its_words(
    faulty: Far, stub: Stub, text: str, numbers: tuple[int, ...]
) -> None:
    with (
        stub.spoiling(says(400, text)),
        faulty.here() as here,
        pytest.raises(openai.BadRequestError) as refused,
    ):
        whole(here, faulty.name, HI)
    assert refused.value.code == "context_length_exceeded"
    assert all(f"{number} tokens" in refused.value.message for number in numbers[-1:])
    assert all(f"{number}" in refused.value.message for number in numbers)
    assert "900000 tokens" not in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=99999 cannot be greater than max_model_len=2048. Please request fewer output tokens. (parameter=max_tokens, value=99999)",
        "a stop text is too long",
        "at most a maximum of 16 tokens can be in logit_bias",
        "Requested sample logprobs of 40, which is greater than max allowed: 20",
    ],
)  # fmt: skip
def test_another_field_that_is_too_large_is_no_long_prompt(
    faulty: Far, stub: Stub, text: str
) -> None:
    """Programs shorten a conversation for the other error, again and again."""
    with stub.spoiling(says(400, text)):
        error = spoilt(faulty, whole)
    assert error.code != "context_length_exceeded"
    assert text[:40] in error.message


@both_forms
def test_a_page_of_a_machine_between_is_not_shown(faulty: Far, stub: Stub, form: Form) -> None:
    page = faults.whole(faults.PAGE, 500, "text/html")
    with stub.spoiling(faults.is_replaced(page)):
        assert "nginx" not in spoilt(faulty, form).message


@both_forms
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(
    faulty: Far, stub: Stub, elsewhere: Stub, form: Form, status: int
) -> None:
    moved = faults.whole(b"", status, location=f"{elsewhere.address}/chat/completions")
    with stub.spoiling(faults.is_replaced(moved)):
        spoilt(faulty, form)
    assert elsewhere.requests == []


@both_forms
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/json", "text/html", "x", "text/event-stream"]
)
def test_another_content_type(faulty: Far, stub: Stub, form: Form, kind: str) -> None:
    theirs = direct(faulty)
    with stub.spoiling(faults.is_called(kind)):
        assert answered(faulty, form) in (theirs, None)


@both_forms
def test_a_whole_answer_to_a_request_for_a_stream(faulty: Far, stub: Stub, form: Form) -> None:
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}]}  # fmt: skip
    answer = faults.whole(json.dumps(body).encode())
    with stub.spoiling(faults.is_replaced(answer)):
        found = answered(faulty, form)
    assert found is None or found[0][0].content == "whole"


@both_forms
def test_a_compressed_answer(faulty: Far, stub: Stub, form: Form) -> None:
    theirs = direct(faulty)
    with stub.spoiling(faults.is_packed):
        assert answered(faulty, form) in (theirs, None)
    assert "gzip" not in stub.asked[-1].headers.get("accept-encoding", "")


LIES = {
    "negative": {"prompt_tokens": -5, "completion_tokens": -1, "total_tokens": -6},
    "huge": {"prompt_tokens": 10**30, "completion_tokens": 10**30, "total_tokens": 0},
    "text": {"prompt_tokens": "many", "completion_tokens": None, "total_tokens": []},
    "a text": "many",
    "a list": [1, 2],
    "nothing": None,
    "details": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 999}},
}  # fmt: skip


@both_forms
@pytest.mark.parametrize("lie", LIES)
def test_counts_that_are_none(faulty: Far, stub: Stub, form: Form, lie: str) -> None:
    with stub.spoiling(faults.claims_usage(LIES[lie])):
        found = answered(faulty, form)
    assert found is None or (found[0][0].content and found[1] and min(found[1]) >= 0)


# --- its list of models ---------------------------------------------------------------------------------


LISTS: dict[str, Fault] = {
    "no JSON": faults.is_replaced(faults.whole(faults.PAGE, 200, "text/html")),
    "no list": faults.is_replaced(faults.whole(b'{"data": 7}')),
    "strange entries": faults.is_replaced(
        faults.whole(json.dumps({"data": [7, None, {"id": None}, {"id": ""}, {}]}).encode())
    ),
    "40 MiB": faults.is_replaced(
        faults.whole(
            json.dumps({"data": [{"id": f"m{at}" * 50} for at in range(200_000)]}).encode()
        )
    ),
    "silence": faults.says_nothing,
    "hangs up": faults.hangs_up,
    "breaks off": faults.breaks_off(1),
    "an error": says(500, "x"),
    "no key": says(401, f"bad key {KEY}"),
}


@pytest.mark.parametrize("what", LISTS)
@asynchronous
async def test_a_list_of_models_that_is_none_is_one_sentence(
    faulty: Far, stub: Stub, what: str
) -> None:
    """And it keeps nobody waiting: the local model is listed all the same."""
    started = time.monotonic()
    with stub.spoiling(LISTS[what], MODELS):
        names, problem = await listed(faulty)
    assert time.monotonic() - started < 6
    assert names == []
    assert KEY not in problem
    assert problem.count("\n") == 0 < len(problem) < 1000


async def listed(faulty: Far) -> tuple[list[str], str]:
    """The models of an engine that was never asked before, and what went wrong."""
    key = f"file:{faulty.home / 'far-key'}"
    engines = RemoteEngines(
        (RemoteEngine(NAME, faulty.address, key, timeout=PATIENCE),), lambda: (LOCAL,)
    )
    await engines.refresh()
    names = [entry.name for entry in engines.entries()]
    await engines.close()
    return names, engines.problems.get(NAME, "")


@asynchronous
async def test_a_list_of_models_is_asked_of_this_engine_only(
    faulty: Far, stub: Stub, elsewhere: Stub
) -> None:
    moved = faults.whole(b"", 307, location=f"{elsewhere.address}/models")
    with stub.spoiling(faults.is_replaced(moved), MODELS):
        assert (await listed(faulty))[0] == []
    assert elsewhere.requests == []
    assert (await listed(faulty))[0] == [f"{NAME}/{name}" for name in stub.models]


def test_a_list_that_is_none_does_not_hide_the_local_model(tmp_path: Path) -> None:
    with (
        stub_engine("vllm", KEY) as other,
        other.spoiling(LISTS["no JSON"], MODELS),
        ours(tmp_path / "home", **{NAME: {"address": other.address}}) as server,
    ):
        found = httpx.get(f"{server.url}/v1/models", timeout=20).json()
    assert [model["id"] for model in found["data"]] == [LOCAL]
