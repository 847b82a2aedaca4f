"""Answers in channels over HTTP: programs get thoughts, text and calls, as from any other model."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from app.text.template import TRUSTED
from tests.app.server.serving import answering, served
from tests.app.text.harmony import channelled

ASKED = {"role": "user", "content": "17 + 25?"}
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"
THOUGHT = f"{ANALYSIS}I add.{NEXT}"
CALL = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 17}<|call|>'
BEHIND = "<|end|>never"  # what an engine that goes on past the end would say
INTEGER = {"type": "integer", "minimum": 0, "maximum": 99}
PARAMETERS = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}
ADD = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}


class Model:
    """A server, and what its model says next."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = url, folder

    def ask(self, says: str, **fields: Any) -> dict[str, Any]:
        """The choice of a chat completion."""
        return self.post("chat/completions", says, messages=[ASKED], **fields)

    def post(self, route: str, says: str, **fields: Any) -> dict[str, Any]:
        self.says(says)
        body = {"model": "channelled", **fields}
        answer = httpx.post(f"{self.url}/v1/{route}", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["choices"][0])

    def deltas(self, says: str, **fields: Any) -> list[dict[str, Any]]:
        """Of a streamed chat completion."""
        self.says(says)
        body = {"model": "channelled", "messages": [ASKED], "stream": True, **fields}
        url = f"{self.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        return [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]

    def says(self, text: str) -> None:
        (self._folder / "answer.txt").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = channelled.files(tmp_path_factory.mktemp("channelled"))
    with answering(lambda: channelled.assistant(folder)) as url:
        yield Model(url, folder)


class TestThoughts:
    SAYS = f"{THOUGHT}{FINAL}It is 42.<|return|>{BEHIND}"

    def test_stand_beside_the_answer(self, model: Model) -> None:
        choice = model.ask(self.SAYS)
        assert choice["message"]["reasoning_content"] == "I add."
        assert choice["message"]["content"] == "It is 42."
        assert choice["finish_reason"] == "stop"

    def test_arrive_first(self, model: Model) -> None:
        deltas = model.deltas(self.SAYS)
        told = ["".join(d.get(n) or "" for d in deltas) for n in ("reasoning_content", "content")]
        assert told == ["I add.", "It is 42."]
        assert sum("reasoning_content" in delta for delta in deltas) > 2

    def test_an_answer_without_one(self, model: Model) -> None:
        message = model.ask(f"{FINAL}It is 42.<|return|>")["message"]
        assert message["content"] == "It is 42."
        assert "reasoning_content" not in message

    def test_one_that_is_cut_short_is_no_answer(self, model: Model) -> None:
        whole = len(channelled.ids_of(f"{ANALYSIS}I add."))
        choice = model.ask(self.SAYS, max_tokens=whole)
        assert choice["finish_reason"] == "length"
        assert choice["message"]["reasoning_content"] == "I add."
        assert choice["message"]["content"] == ""

    def test_other_protocols(self, model: Model) -> None:
        model.says(self.SAYS)
        with anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=0) as client:
            message = client.messages.create(model="channelled", max_tokens=50, messages=[ASKED])
        thought, text = message.content
        assert (thought.thinking, text.text) == ("I add.", "It is 42.")
        with openai.OpenAI(base_url=f"{model.url}/v1", api_key="none", max_retries=0) as other:
            response = other.responses.create(model="channelled", input=[ASKED])
        assert response.output[0].content[0].text == "I add."
        assert response.output_text == "It is 42."

    def test_a_text_that_a_program_wrote_goes_on_without_headers(self, model: Model) -> None:
        prompt = "<|start|>user<|message|>17 + 25?<|end|><|start|>assistant<|channel|>final"
        choice = model.post("completions", f"<|message|>42.{BEHIND}", prompt=prompt, max_tokens=4)
        assert choice["text"] == "42."


class TestCalls:
    def test_are_calls(self, model: Model) -> None:
        choice = model.ask(THOUGHT + CALL + BEHIND, tools=[ADD])
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["reasoning_content"] == "I add."
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "add", "arguments": '{"a": 17}'}

    def test_arrive_as_they_are_written(self, model: Model) -> None:
        deltas = model.deltas(f"<|channel|>commentary<|message|>I add.{NEXT}{CALL}", tools=[ADD])
        assert "".join(delta.get("content") or "" for delta in deltas) == "I add."
        parts = [part["function"] for delta in deltas for part in delta.get("tool_calls", [])]
        assert parts[0]["name"] == "add"
        assert "".join(part["arguments"] for part in parts) == '{"a": 17}'
        assert len(parts) > 3

    def test_of_a_tool_that_there_is_not_are_text(self, model: Model) -> None:
        message = model.ask(CALL.replace("add", "sub"), tools=[ADD])["message"]
        assert "tool_calls" not in message
        assert '{"name": "sub", "arguments": {"a": 17}}' in message["content"]

    def test_a_half_one_is_none(self, model: Model) -> None:
        choice = model.ask(CALL.partition("}")[0], tools=[ADD])
        assert choice["finish_reason"] != "tool_calls"


RENAMED = {
    "<|bos|>": "<|start|>", "<|system|>": "<|channel|>", "<|user|>": "<|message|>",
    "<|assistant|>": "<|call|>", "<|pad|>": "<|return|>",
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models") / "pocket"
    shutil.copytree(TRUSTED / "pocket", folder)
    tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
    for old, new in RENAMED.items():
        tokenizer = tokenizer.replace(f'"{old}"', f'"{new}"')
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|return|>"}')
    (folder / "chat_template.jinja").write_text(channelled.TEMPLATE, encoding="utf-8")
    with served(tmp_path_factory.mktemp("home"), str(folder)) as url:
        yield url


class TestHeldAnswers:
    """The bundled model, whose control tokens have other names: a real engine holds its answers."""

    def message(self, url: str, **fields: Any) -> dict[str, Any]:
        body = {"model": "pocket", "messages": [ASKED], "max_tokens": 120, **fields}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["choices"][0]["message"])

    def test_have_their_format(self, url: str) -> None:
        held = {"type": "json_schema", "json_schema": {"name": "sum", "schema": PARAMETERS}}
        plain = self.message(url, response_format=held, drafter="none")
        assert [*json.loads(plain["content"])] == ["a"]
        assert "reasoning_content" not in plain
        assert self.message(url, response_format=held, drafter="lookup") == plain

    def test_call_what_they_must(self, url: str) -> None:
        named = {"type": "function", "function": {"name": "look"}}
        for choice, names in (("required", ("add", "look")), (named, ("look",))):
            for drawn in ({}, {"temperature": 1.5, "seed": 3}):
                fields = {"tools": [ADD, LOOK], "tool_choice": choice, **drawn}
                (call,) = self.message(url, **fields, drafter="none")["tool_calls"]
                assert call["function"]["name"] in names
                assert [*json.loads(call["function"]["arguments"])] == ["a"]
                for drafter in ("auto", "lookup"):
                    (other,) = self.message(url, **fields, drafter=drafter)["tool_calls"]
                    assert drawn or other["function"] == call["function"]

    def test_that_need_not_call_write_in_channels(self, url: str) -> None:
        begun = self.message(url, tools=[ADD], logit_bias={"1": 100}, max_tokens=3)
        assert not begun["content"]  # the mark of a channel, and a part of its name
        free = self.message(url, tools=[ADD], drafter="none", max_tokens=40)
        assert free.get("reasoning_content") or free["content"] or free["tool_calls"]
        assert "assistant" not in (free["content"] or "")
        same = self.message(url, tools=[ADD], drafter="lookup", max_tokens=40)
        for told in (free, same):
            told.pop("tool_calls", None)
        assert same == free
