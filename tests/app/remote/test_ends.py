"""What an engine refuses, clients that leave, and several at once: the same for every engine."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from tests.app.remote.far import (
    FORMS,
    KEY,
    LOCAL,
    NAME,
    Answer,
    Far,
    Stoppable,
    ours,
    streamed,
    user,
    whole,
)
from tests.app.remote.faulty import check
from tests.app.remote.stub import Stub
from tests.waiting import wait_for

Form = Callable[..., Answer]
GREEDY = {"temperature": 0, "max_tokens": 48}
HI = user("What is 17 + 25?")
LONG = user("Write about the sea. " * 3)

both_forms = pytest.mark.parametrize("form", FORMS)


@both_forms
def test_a_prompt_that_is_too_long(far: Far, form: Form) -> None:
    with far.here() as here, pytest.raises(openai.BadRequestError) as refused:
        form(here, far.name, user("word " * 6000), max_tokens=8)
    assert refused.value.code == "context_length_exceeded"
    assert "4096" in refused.value.message
    assert refused.value.param == "messages"


def test_a_model_that_the_engine_does_not_have(far: Far) -> None:
    """It says so itself; SGLang answers under any name."""
    if far.kind in ("stub-sglang", "llama-server"):
        with far.there() as there, far.here() as here:
            theirs = whole(there, "any name", HI, **GREEDY)
            assert whole(here, f"{NAME}/any name", HI, **GREEDY) == theirs
        return
    with far.here() as here, pytest.raises(openai.NotFoundError) as refused:
        whole(here, f"{NAME}/no-such-model", HI)
    assert refused.value.code == "model_not_found"
    assert "no-such-model" in refused.value.message


def test_an_engine_that_is_not_configured(far: Far) -> None:
    with far.here() as here, pytest.raises(openai.NotFoundError) as refused:
        whole(here, "elsewhere/qwen3-32b", HI)
    assert refused.value.code == "model_not_found"


def test_a_field_that_the_engine_refuses(stubbed: Far, stub_of: Stub) -> None:
    """Its status and its words come through."""
    with stubbed.here() as here, pytest.raises(openai.BadRequestError) as refused:
        whole(here, stubbed.name, HI, logprobs=True, top_logprobs=9)
    assert "Requested sample logprobs of 9" in refused.value.message


def running(far: Far) -> float:
    """How many answers the engine is writing now."""
    if far.stub is not None:
        return sum(not seen.ended.is_set() for seen in far.stub.asked)
    url, key = f"{far.address.removesuffix('/v1')}/metrics", {"authorization": f"Bearer {KEY}"}
    text = httpx.get(url, headers=key, timeout=10).text
    names = ("llamacpp:requests_processing", "vllm:num_requests_running")
    lines = [line for line in text.splitlines() if line.startswith(names)]
    return sum(float(line.split()[-1]) for line in lines)


ENDLESS = {"temperature": 0, "max_tokens": 2000}


def test_a_client_that_leaves_ends_the_answer_at_the_engine(far: Far) -> None:
    if far.stub is not None:
        far.stub.words, far.stub.pace = 3000, 0.02
    fields = {} if far.stub is not None else {"response_format": ENDLESS_LIST}
    with far.here() as here:
        stream = here.chat.completions.create(
            model=far.name, messages=LONG, stream=True, **ENDLESS, **fields
        )
        next(iter(stream))
        wait_for(lambda: running(far) > 0)
        stream.close()
        wait_for(lambda: running(far) == 0, seconds=5)
    if far.stub is not None:
        assert far.stub.asked[-1].left.is_set()


NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 900, "maxItems": 900}
LISTED = {"type": "object", "properties": {"a": NUMBERS}, "required": ["a"]}
ENDLESS_LIST = {"type": "json_schema", "json_schema": {"name": "list", "schema": LISTED}}


def test_a_client_that_leaves_before_the_first_token(stubbed: Far, stub_of: Stub) -> None:
    stub_of.words, stub_of.pace = 3000, 0.02
    with stubbed.here() as here, pytest.raises(openai.APITimeoutError):
        whole(here.with_options(timeout=0.7), stubbed.name, LONG)
    wait_for(stub_of.asked[-1].left.is_set, seconds=5)


def test_two_at_once(far: Far) -> None:
    if far.stub is not None:
        far.stub.pace = 0.01
    prompts = [user(f"What is {number} + {number}?") for number in range(4)]
    with far.here() as here, ThreadPoolExecutor(4) as pool:
        alone = [whole(here, far.name, prompt, **GREEDY) for prompt in prompts]
        ask = lambda prompt: streamed(here, far.name, prompt, **GREEDY)  # noqa: E731
        assert [*pool.map(ask, prompts)] == alone


def test_the_local_model_answers_meanwhile(far: Far) -> None:
    if far.stub is not None:
        far.stub.words, far.stub.pace = 400, 0.02
    with far.here() as here, ThreadPoolExecutor(1) as pool:
        remote = pool.submit(streamed, here, far.name, HI, **GREEDY)
        local = whole(here, LOCAL, HI, **GREEDY)[0][0]
        assert local.content
        assert remote.result(60)[0][0].content
    assert threading.active_count() < 100


def test_a_process_that_restarts_in_the_middle(stoppable: Stoppable, tmp_path: Path) -> None:
    """What came stays, the error is one sentence, and the next request is answered."""
    table = {"address": stoppable.address}
    with ours(tmp_path / "home", **{NAME: table}) as server:
        far = Far("process", stoppable.address, LOCAL, server, tmp_path)
        with far.here() as here:
            fields = {**ENDLESS, "stream": True, "response_format": ENDLESS_LIST}
            parts = iter(here.chat.completions.create(model=far.name, messages=HI, **fields))
            while not next(parts).choices[0].delta.content:
                pass
            stoppable.stop()
            with pytest.raises(openai.APIError) as broken:
                list(parts)
            check(broken.value)
            with pytest.raises(openai.InternalServerError) as gone:
                whole(here, far.name, HI)
            check(gone.value)
            assert whole(here, LOCAL, HI, max_tokens=4)[0][0].content
            stoppable.start()
            assert whole(here, far.name, HI, **GREEDY)[0][0].content
