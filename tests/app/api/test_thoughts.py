"""A model whose template opens a thought: the answer is told with its beginning, or has none."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.template import TRUSTED
from tests.app.api.serving import served

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


def content(url: str, **fields: Any) -> str:
    return str(ask(url, **fields)["choices"][0]["message"]["content"])


def test_its_answers_begin_with_the_thought_that_the_prompt_opened(url: str) -> None:
    plain = content(url, drafter="none")
    assert plain.startswith(OPENING)
    assert len(plain) > len(OPENING)
    assert content(url, drafter="auto") == plain
    stream = {"model": "pocket", "messages": [ASKED], "max_tokens": 60, "stream": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=stream, timeout=60) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == plain


def test_stop_texts_are_looked_for_in_what_the_model_says(url: str) -> None:
    plain = content(url, drafter="none")
    assert content(url, stop=["<think>", "think", "k>"]) == plain
    first = plain.removeprefix(OPENING)[1]
    assert content(url, stop=[first]) == OPENING + plain.removeprefix(OPENING).partition(first)[0]


def test_an_answer_that_is_held_to_a_format_has_no_thoughts(url: str) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    held = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    assert [*json.loads(content(url, response_format=held))] == ["sum"]


def test_an_answer_that_is_gone_on_with_is_told_from_there(url: str) -> None:
    whole = content(url, drafter="none")
    begun = whole[: len(OPENING) + 4]
    story = [ASKED, {"role": "assistant", "content": begun}]
    rest = content(url, messages=story, continue_final_message=True, add_generation_prompt=False)
    assert not rest.startswith("<think>")
