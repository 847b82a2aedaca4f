"""What is sent to an engine, to that engine only; and no key is seen again."""

from pathlib import Path

import httpx
import pytest

from tests.app.remote.dialects import ACCEPTED, DRAFTED, STEPS
from tests.app.remote.far import KEY, NAME, Far, ours, whole
from tests.app.remote.faulty import GREEDY, HI, says, spoilt
from tests.app.remote.stub import Stub

# --- what is sent ---------------------------------------------------------------------------------------

ALLOWED = {
    "model", "messages", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "seed",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty", "logit_bias",
    "max_tokens", "max_completion_tokens", "stop", "n", "response_format", "tools", "tool_choice",
    "parallel_tool_calls", "logprobs", "top_logprobs", "reasoning_effort", "chat_template_kwargs",
    "return_spec_tokens_details",
}  # fmt: skip


def test_only_fields_of_the_list_arrive(faulty: Far, stub: Stub) -> None:
    fields = {
        "user": "anna", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "foo": [1],
        "vllm_xargs": {"x": 1}, "kv_transfer_params": {"x": 1}, "lora_path": "/etc", "echo": True,
        "ignore_eos": True, "cache_salt": "x", "prompt_logprobs": 3, "session_id": "x", "priority": 9,
        "truncate_prompt_tokens": 1, "mm_processor_kwargs": {"x": 1}, "rid": "1", "custom_logit_processor": "x",
    }  # fmt: skip
    body = {"model": faulty.name, "messages": [{**HI[0], "name": "anna", "x": 1}], **fields}
    headers = {"x-api-key": "sk-ours", "cookie": "a=b", "x-forwarded-for": "1.2.3.4", "x-data-parallel-rank": "1"}  # fmt: skip
    found = httpx.post(f"{faulty.url}/chat/completions", json=body, headers=headers, timeout=20)
    assert found.status_code == 200, found.text
    seen = stub.asked[-1]
    assert {*seen.body} <= ALLOWED
    assert {*seen.body["messages"][0]} <= {"role", "content"}
    assert not {"x-api-key", "cookie", "x-forwarded-for", "x-data-parallel-rank"} & {*seen.headers}
    assert "sk-ours" not in f"{seen.headers}"


def test_only_known_fields_come_back(faulty: Far, stub: Stub) -> None:
    found = httpx.post(
        f"{faulty.url}/chat/completions",
        json={"model": faulty.name, "messages": HI, **GREEDY},
        timeout=20,
    ).json()
    assert found["model"] == faulty.name
    choice = found["choices"][0]
    own = {"token_ids", "routed_experts", "stop_reason", "prompt_token_ids", "kv_transfer_params"}
    assert not own & ({*found} | {*choice} | {*choice["message"]})


def test_variables_of_the_library_are_not_used(
    faulty: Far, stub: Stub, elsewhere: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another account nor a proxy: nothing is sent that nobody configured."""
    proxy = elsewhere.address.removesuffix("/v1")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-account")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", elsewhere.address)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-secret: secret")
    table = {"address": stub.address, "key": ""}
    key, stub.key = stub.key, None
    try:
        with ours(tmp_path / "home", **{NAME: table}) as server:
            body = {"model": faulty.name, "messages": HI, **GREEDY}
            with httpx.Client(trust_env=False, timeout=20) as client:
                assert (
                    client.post(f"{server.url}/v1/chat/completions", json=body).status_code == 200
                )
        sent = f"{[seen.headers for seen in stub.requests]}"
    finally:
        stub.key = key
        stub.requests.clear()
    assert "secret" not in sent
    assert "sk-" not in sent
    assert "authorization" not in sent.lower()
    assert elsewhere.requests == []


# --- what is kept ---------------------------------------------------------------------------------------


def test_no_key_is_anywhere_in_the_home(faulty: Far, stub: Stub) -> None:
    with stub.spoiling(says(500, f"failed for {KEY}")):
        spoilt(faulty, whole)
    with faulty.here() as here:
        whole(here, faulty.name, HI, **GREEDY)
    files = [path for path in faulty.home.rglob("*") if path.is_file() and path.name != "far-key"]
    assert files
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("detailed", [False, True])
def test_what_it_tells_of_its_drafts(stubbed: Far, detailed: bool) -> None:
    """vLLM counts the drafts of all requests, or also of each; SGLang tells them where it is asked."""
    assert stubbed.stub is not None
    stubbed.stub.detailed = detailed
    body = {"model": stubbed.name, "messages": HI, **GREEDY}
    httpx.get(f"{stubbed.url}/models", timeout=20)
    found = httpx.post(f"{stubbed.url}/chat/completions", json=body, timeout=20).json()
    assert found["timings"]["draft_n"] == DRAFTED
    assert found["timings"]["draft_n_accepted"] == ACCEPTED
    assert found["speculation"]["passes"] == STEPS
    assert NAME in found["speculation"]["reason"]
