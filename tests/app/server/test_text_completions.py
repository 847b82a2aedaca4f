"""Texts to continue: several at once, as token ids, with an echo and what the prompt is worth."""

from typing import Any

import openai
import pytest

from tests.app.server.serving import answer, events, post

TEXT = "Hello there, my friend"


def completed(url: str, prompt: Any, **fields: Any) -> dict[str, Any]:
    return answer(url, "completions", prompt=prompt, **{"max_tokens": 3, **fields})


def choices(url: str, prompt: Any, **fields: Any) -> list[dict[str, Any]]:
    return list(completed(url, prompt, **fields)["choices"])


def ids(url: str, text: str) -> list[int]:
    """The tokens of a text, as the echo of a text shows how many there are."""
    [found] = choices(url, text, echo=True, logprobs=0, max_tokens=0)
    return [*range(len(found["logprobs"]["tokens"]))]


def test_several_prompts_are_answered_as_each_alone(url: str) -> None:
    prompts = ["Hello", "The sky is", "1, 2, 3,"]
    alone = [choices(url, prompt)[0]["text"] for prompt in prompts]
    together = completed(url, prompts)
    assert [one["text"] for one in together["choices"]] == alone
    assert [one["index"] for one in together["choices"]] == [0, 1, 2]
    counts = [completed(url, prompt)["usage"] for prompt in prompts]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][name] == sum(count[name] for count in counts)
    twice = choices(url, prompts[:2], n=2)
    assert [one["text"] for one in twice] == [alone[0], alone[0], alone[1], alone[1]]
    assert choices(url, [prompts[0]])[0]["text"] == alone[0]


def test_several_prompts_in_a_stream(url: str) -> None:
    prompts = ["Hello", "The sky is"]
    parts = ["", ""]
    for chunk in events(url, "completions", prompt=prompts, max_tokens=3, echo=True):
        for one in chunk["choices"]:
            parts[one["index"]] += one["text"]
    assert parts == [one["text"] for one in choices(url, prompts, echo=True)]
    assert all(part.startswith(prompt) for part, prompt in zip(parts, prompts, strict=True))


@pytest.mark.parametrize("prompt", [[300, 301, 302], [[300, 301, 302]], [[300, 301, 302], [400]]])
def test_prompts_as_token_ids(url: str, prompt: list[Any]) -> None:
    found = completed(url, prompt, logprobs=1, echo=True, max_tokens=1)
    lists = prompt if isinstance(prompt[0], list) else [prompt]
    assert found["usage"]["prompt_tokens"] == sum(map(len, lists))
    for one, tokens in zip(found["choices"], lists, strict=True):
        columns = one["logprobs"]
        assert {len(column) for column in columns.values()} == {len(tokens) + 1}
        assert columns["token_logprobs"][0] is columns["top_logprobs"][0] is None
        assert one["text"] == "".join(columns["tokens"])


def test_what_a_text_is_worth_is_what_writing_it_was_worth(url: str) -> None:
    [written] = choices(url, TEXT, max_tokens=8, logprobs=2)
    [whole] = choices(url, TEXT + written["text"], max_tokens=0, echo=True, logprobs=2)
    own, read = written["logprobs"], whole["logprobs"]
    assert whole["text"] == TEXT + written["text"] == "".join(read["tokens"])
    assert read["tokens"][-8:] == own["tokens"]
    assert read["token_logprobs"][-8:] == pytest.approx(own["token_logprobs"], abs=1e-3)
    assert read["text_offset"][-8:] == own["text_offset"]
    assert [max(one, key=one.__getitem__) for one in read["top_logprobs"][-8:]] == own["tokens"]
    again = choices(url, TEXT + written["text"], max_tokens=0, echo=True, logprobs=2)
    assert (
        again[0]["logprobs"]["token_logprobs"] == read["token_logprobs"]
    )  # also from a warm cache


def test_a_long_text_is_read_in_parts(url: str) -> None:
    text = " ".join(f"number {number}" for number in range(60))
    [found] = choices(url, text, max_tokens=1, echo=True, logprobs=0)
    columns = found["logprobs"]
    assert "".join(columns["tokens"]) == found["text"]
    assert all(value <= 0 for value in columns["token_logprobs"][1:])
    [half] = choices(url, text[: len(text) // 2], max_tokens=1, echo=True, logprobs=0)
    known = half["logprobs"]["token_logprobs"][1:-3]
    assert columns["token_logprobs"][1 : len(known) + 1] == pytest.approx(known, abs=1e-3)


def test_an_echo_alone(url: str) -> None:
    [found] = choices(url, TEXT, max_tokens=0, echo=True)
    assert (found["text"], found["logprobs"]) == (TEXT, None)
    assert completed(url, TEXT, max_tokens=0, echo=True)["usage"]["completion_tokens"] == 0
    [more] = choices(url, TEXT, echo=True)
    assert more["text"] == TEXT + choices(url, TEXT)[0]["text"]


def test_an_echo_in_a_stream_has_the_same_columns(url: str) -> None:
    asked: dict[str, Any] = {"max_tokens": 4, "echo": True, "logprobs": 1}
    [whole] = choices(url, TEXT, **asked)
    chunks = events(url, "completions", prompt=TEXT, **asked)
    parts = [one for chunk in chunks for one in chunk["choices"]]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for column, values in whole["logprobs"].items():
        found = [each for part in parts if part["logprobs"] for each in part["logprobs"][column]]
        assert len(found) == len(values)
        if column in ("tokens", "text_offset"):
            assert found == values


def test_openais_client_sends_several_prompts(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        found = client.completions.create(
            model="pocket", prompt=["a", "b"], max_tokens=2, echo=True, logprobs=1
        )
    assert [one.text[0] for one in found.choices] == ["a", "b"]
    assert found.choices[1].logprobs is not None


def test_an_unknown_token_is_refused(url: str) -> None:
    refused = post(url, "completions", prompt=[[1, 10**9]])
    assert (refused.status_code, "token ids" in refused.text) == (400, True)
