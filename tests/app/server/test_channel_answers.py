"""Answers in channels over HTTP, held by a real engine; test_thoughts.py has what programs get of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.server.serving import answer, served_changed
from tests.app.text.harmony import channelled

ASKED = {"role": "user", "content": "17 + 25?"}
INTEGER = {"type": "integer", "minimum": 0, "maximum": 99}
PARAMETERS = {
    "type": "object", "properties": {"a": INTEGER}, "required": ["a"],
    "additionalProperties": False,
}  # fmt: skip
ADD = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
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
