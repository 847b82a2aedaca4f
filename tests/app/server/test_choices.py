"""Several answers to one request: each with its place, counted together, ended together."""

import time
from collections import defaultdict
from typing import Any, ClassVar

import httpx
import openai
import pytest

from tests.app.server import serving
from tests.app.server.fake_assistant import BUG, CRASH, FOREVER
from tests.app.server.serving import HTTP, Running, answer, events

WANTED = {"model": "pocket", "messages": [{"role": "user", "content": "a b c d e"}]}


def test_each_has_its_place_and_they_are_counted_together(client: openai.OpenAI) -> None:
    asked: Any = {**WANTED, "n": 3}
    whole = client.chat.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert {choice.message.content for choice in whole.choices} == {"a b c d e "}
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (5, 15)
    assert whole.usage.total_tokens == 20
    extra: Any = whole.model_extra
    assert extra["speculation"]["passes"] == 9
    assert (extra["timings"]["predicted_n"], extra["timings"]["predicted_ms"]) == (15, 20.0)
    assert (extra["timings"]["draft_n"], extra["timings"]["draft_n_accepted"]) == (18, 9)


def test_each_chunk_of_a_stream_has_its_place(client: openai.OpenAI) -> None:
    asked: Any = {**WANTED, "n": 3, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.chat.completions.create(**asked)
    texts: dict[int, str] = defaultdict(str)
    ends: dict[int, list[str]] = defaultdict(list)
    for chunk in chunks:
        [choice] = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        ends[choice.index] += [choice.finish_reason] if choice.finish_reason else []
    assert texts == dict.fromkeys(range(3), "a b c d e ")
    assert ends == {0: ["stop"], 1: ["stop"], 2: ["stop"]}
    assert len({chunk.id for chunk in (*chunks, last)}) == 1
    assert not last.choices
    assert last.usage.completion_tokens == 15


def test_they_are_written_at_the_same_time(running: Running) -> None:
    running.assistant.pause = 0.1
    chunks = [chunk["choices"][0] for chunk in streamed(running, n=2)]
    places = [chunk["index"] for chunk in chunks if chunk["delta"].get("content")]
    assert places[:4] in ([0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0])


def test_completions_have_places_too(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="pocket", prompt="a b c", n=2, logprobs=1)
    assert [(c.index, c.text) for c in whole.choices] == [(0, "a b c "), (1, "a b c ")]
    assert whole.choices[0].logprobs == whole.choices[1].logprobs
    steps = client.completions.create(model="pocket", prompt="a b c", n=2, stream=True)
    assert {step.choices[0].index for step in steps} == {0, 1}


def test_predictions_are_counted_together(client: openai.OpenAI) -> None:
    prediction = {"type": "content", "content": "a b c d e f"}
    asked: Any = {**WANTED, "n": 2, "prediction": prediction}
    usage: Any = client.chat.completions.create(**asked).usage
    details = usage.completion_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (10, 2)


@pytest.mark.parametrize(("seed", "seeds"), [(7, [7, 8, 9]), (2**63 - 1, [2**63 - 1, 0, 1])])
def test_each_has_a_seed_of_its_own(running: Running, seed: int, seeds: list[int]) -> None:
    post(running, n=3, seed=seed, temperature=1)
    assert [turn.sampling.seed for turn in running.assistant.requests] == seeds
    running.assistant.forget()
    post(running, n=2, temperature=1)
    assert [turn.sampling.seed for turn in running.assistant.requests] == [None, None]


@pytest.mark.parametrize("wrong", [CRASH, BUG])
def test_a_failure_of_one_is_one_of_all(running: Running, wrong: str) -> None:
    asked = [{"role": "user", "content": wrong}]
    assert post(running, n=3, messages=asked).status_code == 500
    *_, last = streamed(running, n=3, messages=asked)
    assert last["error"]["type"] == "server_error"


def test_a_client_that_leaves_ends_all(running: Running) -> None:
    body = {**WANTED, "n": 4, "stream": True, "messages": [{"role": "user", "content": FOREVER}]}
    with HTTP.stream("POST", f"{running.url}/v1/chat/completions", json=body) as response:
        next(response.iter_lines())
    assert running.assistant.ended.wait(5)
    end = time.monotonic() + 5
    while running.assistant.running and time.monotonic() < end:
        time.sleep(0.01)
    assert running.assistant.running == 0


def post(running: Running, **changes: object) -> httpx.Response:
    return serving.post(running.url, "chat/completions", **{**WANTED, **changes})


def streamed(running: Running, **changes: object) -> list[dict[str, Any]]:
    return events(running.url, **{**WANTED, **changes})


class TestThePocketModel:
    """The text of a choice does not depend on the other choices."""

    ASKED: ClassVar[dict[str, Any]] = {
        "messages": [{"role": "user", "content": "Tom has 3 apples and buys 4. How many?"}],
        "max_tokens": 24,
    }

    def answers(self, url: str, **changes: object) -> list[str]:
        found = answer(url, **{**self.ASKED, **changes})
        return [choice["message"]["content"] for choice in found["choices"]]

    @pytest.mark.parametrize("drafter", ["none", "auto", "specexec"])
    def test_each_is_the_answer_to_its_own_seed(self, url: str, drafter: str) -> None:
        drawn = {"temperature": 1.0, "drafter": drafter}
        alone = [self.answers(url, seed=seed, **drawn) for seed in range(40, 44)]
        assert self.answers(url, seed=40, n=4, **drawn) == [one for [one] in alone]
        assert len({one for [one] in alone}) > 1

    def test_greedily_all_are_the_same(self, url: str) -> None:
        assert len(set(self.answers(url, n=3))) == 1
