"""Answers in channels over HTTP: programs get thoughts, text and calls, as from any other model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.server.serving import answer, deltas, joined, served_changed, serving
from tests.app.text.harmony import channelled
from tests.app.text.harmony.channelled import ANALYSIS, FINAL, NEXT

ASKED = {"role": "user", "content": "17 + 25?"}
THOUGHT = f"{ANALYSIS}I add.{NEXT}"
CALL = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 17}<|call|>'
AFTER = "<|end|>never"  # what an engine would say past the end
INTEGER = {"type": "integer", "minimum": 0, "maximum": 99}
PARAMETERS = {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}
ADD = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}


class Model:
    """A server, and what its model says next."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.script = url, folder / "answer.txt"

    def ask(self, says: str, route: str = "chat/completions", **fields: Any) -> dict[str, Any]:
        """The choice of an answer."""
        self.says(says)
        body = {"model": "channelled", "messages": [ASKED], **fields}
        return dict(answer(self.url, route, **body)["choices"][0])

    def deltas(self, says: str, **fields: Any) -> list[dict[str, Any]]:
        """Of a streamed chat completion."""
        self.says(says)
        return deltas(self.url, model="channelled", messages=[ASKED], **fields)

    def says(self, text: str) -> None:
        self.script.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = channelled.files(tmp_path_factory.mktemp("channelled"))
    with serving(lambda: channelled.assistant(folder)) as running:
        yield Model(running.url, folder)


class TestThoughts:
    SAYS = f"{THOUGHT}{FINAL}It is 42.<|return|>{AFTER}"

    def test_come_with_the_answer(self, model: Model) -> None:
        choice = model.ask(self.SAYS)
        assert choice["message"]["reasoning_content"] == "I add."
        assert choice["message"]["content"] == "It is 42."
        assert choice["finish_reason"] == "stop"

    def test_arrive_first(self, model: Model) -> None:
        parts = model.deltas(self.SAYS)
        assert (joined(parts, "reasoning_content"), joined(parts)) == ("I add.", "It is 42.")
        assert sum("reasoning_content" in delta for delta in parts) > 2

    def test_one_that_is_cut_short_is_no_answer(self, model: Model) -> None:
        whole = len(channelled.ids_of(f"{ANALYSIS}I add."))
        choice = model.ask(self.SAYS, max_tokens=whole)
        assert choice["finish_reason"] == "length"
        assert choice["message"]["reasoning_content"] == "I add."
        assert choice["message"]["content"] == ""

    def test_a_prompt_of_a_program_is_continued_without_headers(self, model: Model) -> None:
        prompt = "<|start|>user<|message|>17 + 25?<|end|><|start|>assistant<|channel|>final"
        choice = model.ask(f"<|message|>42.{AFTER}", "completions", prompt=prompt, max_tokens=4)
        assert choice["text"] == "42."


class TestCalls:
    def test_are_calls(self, model: Model) -> None:
        choice = model.ask(THOUGHT + CALL + AFTER, tools=[ADD])
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["reasoning_content"] == "I add."
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "add", "arguments": '{"a": 17}'}

    def test_arrive_as_they_are_written(self, model: Model) -> None:
        found = model.deltas(f"<|channel|>commentary<|message|>I add.{NEXT}{CALL}", tools=[ADD])
        assert joined(found) == "I add."
        parts = [part["function"] for delta in found for part in delta.get("tool_calls", [])]
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


def rename_control_tokens(folder: Path) -> None:
    tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
    for old, new in RENAMED.items():
        tokenizer = tokenizer.replace(f'"{old}"', f'"{new}"')
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|return|>"}')
    (folder / "chat_template.jinja").write_text(channelled.TEMPLATE, encoding="utf-8")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_changed(tmp_path_factory.mktemp("renamed"), rename_control_tokens) as url:
        yield url


class TestHeldAnswers:
    """The bundled model, whose control tokens have other names: a real engine holds its answers."""

    def message(self, url: str, **fields: Any) -> dict[str, Any]:
        body = {"messages": [ASKED], "max_tokens": 120, **fields}
        return dict(answer(url, **body)["choices"][0]["message"])

    def test_have_their_format(self, url: str) -> None:
        held = {"type": "json_schema", "json_schema": {"name": "sum", "schema": PARAMETERS}}
        plain = self.message(url, response_format=held, drafter="none")
        assert [*json.loads(plain["content"])] == ["a"]
        assert "reasoning_content" not in plain
        assert self.message(url, response_format=held, drafter="lookup") == plain

    def test_call_what_they_must(self, url: str) -> None:
        named = {"type": "function", "function": {"name": "look"}}
        drawn = {"temperature": 1.5, "seed": 3}
        for required, names, more in (
            ("required", ("add", "look"), {}), ("required", ("add", "look"), drawn), (named, ("look",), drawn),
        ):  # fmt: skip
            fields = {"tools": [ADD, LOOK], "tool_choice": required, **more}
            (call,) = self.message(url, **fields, drafter="none")["tool_calls"]
            assert call["function"]["name"] in names
            assert [*json.loads(call["function"]["arguments"])] == ["a"]
        fields = {"tools": [ADD, LOOK], "tool_choice": "required"}
        plain, *others = (
            self.message(url, **fields, drafter=drafter)["tool_calls"][0]["function"]
            for drafter in ("none", "auto", "lookup")
        )
        assert others == [plain, plain]

    def test_that_need_not_call_write_in_channels(self, url: str) -> None:
        begun = self.message(url, tools=[ADD], logit_bias={"1": 100}, max_tokens=3)
        assert not begun["content"]  # the mark of a channel, and a part of its name
        free = self.message(url, tools=[ADD], drafter="none", max_tokens=40)
        assert free.get("reasoning_content") or free["content"] or free["tool_calls"]
        assert "assistant" not in (free["content"] or "")
        same = self.message(url, tools=[ADD], drafter="lookup", max_tokens=40)
        for message in (free, same):
            message.pop("tool_calls", None)
        assert same == free
