"""Programs at the running application: the official client, the bundled model."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.ui.application import Application

CHORE = "Repeat this text exactly:\nThe quick brown fox jumps over the lazy dog near the old mill."


@pytest.fixture(scope="module")
def client(app: Application) -> Iterator[openai.OpenAI]:
    url = f"{app.address}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def asked(text: str, **more: Any) -> Any:
    return {"model": "pocket", "messages": [{"role": "user", "content": text}], **more}


def test_law_every_drafter_gives_the_same_answer_streamed_or_not(client: openai.OpenAI) -> None:
    texts = set()
    for drafter in ("none", "lookup", "early_exit", "chain", "specexec", "auto"):
        request = asked(CHORE, max_tokens=48, extra_body={"drafter": drafter})
        whole = client.chat.completions.create(**request)
        stream = client.chat.completions.create(**request, stream=True)
        texts.add(whole.choices[0].message.content)
        texts.add("".join(chunk.choices[0].delta.content or "" for chunk in stream))
    assert len(texts) == 1
    assert texts != {""}


def test_answer_says_what_ran(client: openai.OpenAI) -> None:
    request = asked(CHORE, max_tokens=48, extra_body={"drafter": "chain"})
    answer = client.chat.completions.create(**request)
    extra: Any = answer.model_extra
    assert extra["speculation"]["drafter"] == "chain"
    assert extra["speculation"]["reason"]
    drafted = extra["timings"].get("draft_n", 0)  # how much is worth drafting is measured
    assert 0 <= extra["timings"].get("draft_n_accepted", 0) <= drafted
    assert extra["timings"]["predicted_n"] == answer.usage.completion_tokens


def test_seed_repeats_an_answer(client: openai.OpenAI) -> None:
    request = asked("Tell me about hens.", max_tokens=24, temperature=1, seed=7)
    first, second = (client.chat.completions.create(**request) for _ in range(2))
    assert first.choices[0].message.content == second.choices[0].message.content


def test_stop_text_ends_the_answer_and_is_not_in_it(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(CHORE, max_tokens=48)).choices[0].message.content
    word = whole.split()[3]
    answer = client.chat.completions.create(**asked(CHORE, max_tokens=48, stop=[word]))
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == whole[: whole.index(word)]


def test_prompt_past_the_context_names_both_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="4096") as caught:
        client.chat.completions.create(**asked("word " * 5000))
    assert caught.value.code == "context_length_exceeded"
