"""Thoughts between marks of a model's own over HTTP: programs get them as from any other model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.server.serving import answering
from tests.app.text.harmony import channelled
from tests.app.text.reasoning import marked

ASKED = {"role": "user", "content": "17 + 25?"}
END = "<|END_OF_TURN_TOKEN|>"
SAYS = {
    marked.GEMMA: f"<|channel>thought\nI add.\n<channel|>It is 42.{END}",
    marked.SEED: f"<seed:think>I add.</seed:think>\nIt is 42.{END}",
    marked.COHERE: f"I add.<|END_THINKING|><|START_TEXT|>It is 42.<|END_TEXT|>{END}",
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 17}}\n</tool_call>'
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@contextmanager
def served(folder: Path, template: str) -> Iterator[str]:
    """The endpoint of such a model, whose script is ``answer.txt``."""
    marked.files(folder, template)
    with answering(lambda: channelled.assistant(folder)) as url:
        yield f"{url}/v1/chat/completions"


def ask(url: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "channelled", "messages": [ASKED], **fields}
    answer = httpx.post(url, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


@pytest.mark.parametrize("template", SAYS)
def test_stand_beside_the_answer(tmp_path: Path, template: str) -> None:
    script = tmp_path / "answer.txt"
    script.write_text(SAYS[template], encoding="utf-8")
    with served(tmp_path, template) as url:
        message = ask(url)["message"]
        assert (message["reasoning_content"], message["content"]) == ("I add.", "It is 42.")
        script.write_text(SAYS[template].replace("It is 42.", CALL), encoding="utf-8")
        choice = ask(url, tools=[ADD])
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["reasoning_content"] == "I add."
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "add"
        script.write_text(f"It is 42.{END}", encoding="utf-8")
        message = ask(url, reasoning_effort="none")["message"]
        assert message["content"] == "It is 42."
        assert "reasoning_content" not in message
