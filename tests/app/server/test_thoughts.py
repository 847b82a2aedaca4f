"""A model whose template opens a thought: the answer is told with its beginning, or has none."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from app.text.template import TRUSTED
from tests.app.server.conftest import Running
from tests.app.server.serving import served

ASKED = {"role": "user", "content": "What is 17 + 25?"}
OPENING = "<think>\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models") / "pocket"
    shutil.copytree(TRUSTED / "pocket", folder)
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text() + "{{ '" + OPENING.replace("\n", "\\n") + "' }}")
    with served(tmp_path_factory.mktemp("home"), str(folder)) as url:
        yield url


def ask(url: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "pocket", "messages": [ASKED], "max_tokens": 60, **fields}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def thought(url: str, **fields: Any) -> str:
    """All that pocket says: it closes no thought."""
    message = ask(url, **fields)["choices"][0]["message"]
    assert message["content"] == ""
    return str(message["reasoning_content"])


def test_its_answers_go_on_in_the_thought_that_the_prompt_opened(url: str) -> None:
    plain = thought(url, drafter="none")
    assert plain
    assert thought(url, drafter="auto") == plain
    stream = {"model": "pocket", "messages": [ASKED], "max_tokens": 60, "stream": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=stream, timeout=60) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == plain
    assert not any(delta.get("content") for delta in deltas)


def test_its_tokens_are_counted_apart_as_in_every_count_of_a_thought(url: str) -> None:
    usage = ask(url)["usage"]
    told = usage["completion_tokens_details"]["reasoning_tokens"]
    assert told in (usage["completion_tokens"], usage["completion_tokens"] - 1)  # but the end token
    body = {"model": "pocket", "input": [ASKED], "max_output_tokens": 60}
    usage = httpx.post(f"{url}/v1/responses", json=body, timeout=60).json()["usage"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == told
    held = {"type": "json_object"}
    assert "completion_tokens_details" not in ask(url, response_format=held)["usage"]


def test_stop_texts_are_looked_for_in_what_the_model_says(url: str) -> None:
    plain = thought(url, drafter="none")
    assert thought(url, stop=["<think>", "think", "k>"]) == plain
    assert thought(url, stop=[plain[1]]) == plain.partition(plain[1])[0]


def test_an_answer_that_is_held_to_a_format_has_no_thoughts(url: str) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    held = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    message = ask(url, response_format=held)["choices"][0]["message"]
    assert [*json.loads(message["content"])] == ["sum"]
    assert "reasoning_content" not in message


def test_an_answer_that_is_gone_on_with_is_told_from_there(url: str) -> None:
    story = [ASKED, {"role": "assistant", "content": f"{OPENING}So"}]
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    message = ask(url, messages=story, **fields)["choices"][0]["message"]
    assert "reasoning_content" not in message


ANSWER = "Five. That is all "  # with a space behind every word
SAID = {"role": "user", "content": "<think>\nso it is\n</think>\n\nFive. That is all"}


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line[:5] == "data:"]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class TestProtocols:
    """An assistant that says again what it is told: a thought, and an answer."""

    def test_chat(self, running: Running) -> None:
        body = {"model": "pocket", "messages": [SAID]}
        url = f"{running.url}/v1/chat/completions"
        message = httpx.post(url, json=body).json()["choices"][0]["message"]
        assert message["reasoning_content"] == "so it is"
        assert message["content"] == ANSWER
        with httpx.stream("POST", url, json={**body, "stream": True}) as answer:
            deltas = [event["choices"][0]["delta"] for event in events(answer)]
        told = ["".join(d.get(n, "") for d in deltas) for n in ("reasoning_content", "content")]
        assert told == ["so it is", ANSWER]

    def test_messages(self, running: Running) -> None:
        asked = {"model": "pocket", "max_tokens": 50, "messages": [SAID]}
        with anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0) as client:
            messages = client.messages.create(**asked), _last(client.messages.stream(**asked))
        for message in messages:
            thought, text = message.content
            assert (thought.type, thought.thinking) == ("thinking", "so it is")
            assert (text.type, text.text) == ("text", ANSWER)

    def test_responses(self, running: Running) -> None:
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
            whole = client.responses.create(model="pocket", input=[SAID])
            with client.responses.stream(model="pocket", input=[SAID]) as stream:
                kinds = [event.type for event in stream]
                streamed = stream.get_final_response()
        for response in (whole, streamed):
            assert [item.type for item in response.output] == ["reasoning", "message"]
            assert response.output[0].content[0].text == "so it is"
            assert response.output_text == ANSWER
        assert kinds.index("response.reasoning_text.done") < kinds.index(
            "response.output_text.delta"
        )


def _last(streaming: Any) -> Any:
    with streaming as stream:
        return stream.get_final_message()
