"""A model whose template writes each argument for itself: programs see JSON, as of any other."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.text.template import TRUSTED
from tests.app.server.serving import served

TEMPLATE = """{{ bos_token }}
{%- if tools %}{{ '<|system|>' + tools | tojson + '<|end|>' }}{% endif %}
{%- for m in messages %}
{{- '<|' + ('user' if m.role == 'tool' else m.role) + '|>' + m.content }}
{%- for c in m.tool_calls %}
{{- '\\n<tool_call>\\n<function=' + c.function.name + '>\\n' }}
{%- for name, value in c.function.arguments|items %}
{{- '<parameter=' + name + '>\\n' }}{{ value if value is string else value | tojson }}{{ '\\n</parameter>\\n' }}
{%- endfor %}
{{- '</function>\\n</tool_call>' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}<|assistant|>"""
PROPERTIES = {
    "mode": {"enum": ["new", "more"]},
    "line": {"type": "integer", "minimum": 0, "maximum": 99},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


MARK = tool("mark", **PROPERTIES)
WRITE = tool("write", text={"type": "string"}, **PROPERTIES)
ASKED = {"role": "user", "content": "Write 'good morning' in line 7."}
CALL = {"id": "c", "type": "function", "function": {"name": "write", "arguments": '{"mode": "new", "line": 7, "tags": [], "text": "\\"hi\\""}'}}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models") / "pocket"
    shutil.copytree(TRUSTED / "pocket", folder)
    Path(folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    with served(tmp_path_factory.mktemp("home"), str(folder)) as url:
        yield url


def body(**fields: Any) -> dict[str, Any]:
    tools = {"tools": [WRITE], "tool_choice": "required", "parallel_tool_calls": False}
    return {"model": "pocket", "messages": [ASKED], "max_tokens": 120, **tools, **fields}


def ask(url: str, **fields: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/chat/completions", json=body(**fields), timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_drawn_calls_fit_and_are_the_same_whoever_drafts(url: str) -> None:
    drawn = {"temperature": 1.0, "tools": [MARK]}
    for seed in range(4):
        choice = ask(url, drafter="none", seed=seed, **drawn)["choices"][0]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
        ((name, written),) = _told(choice)
        arguments = json.loads(written)
        assert (name, [*arguments]) == ("mark", ["mode", "line", "tags"])
        assert arguments["mode"] in ("new", "more")
        assert type(arguments["line"]) is int
        assert len(arguments["tags"]) <= 3
        assert set(arguments["tags"]) <= {"a", "b"}
        for drafter in ("auto", "recycling"):
            other = ask(url, drafter=drafter, seed=seed, **drawn)["choices"][0]
            assert _told(other) == [(name, written)]


def test_calls_in_a_stream_are_the_same(url: str) -> None:
    drawn = {"temperature": 1.0, "seed": 3, "max_tokens": 200}
    whole = _told(ask(url, **drawn)["choices"][0])
    with httpx.stream(
        "POST", f"{url}/v1/chat/completions", json=body(stream=True, **drawn), timeout=60
    ) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    parts = [part["function"] for delta in deltas for part in delta.get("tool_calls", [])]
    assert len(parts) > 5
    assert [(parts[0]["name"], "".join(part["arguments"] for part in parts))] == whole
    assert not any(delta.get("content") for delta in deltas)


def test_earlier_calls_are_told_as_the_template_writes_them(url: str) -> None:
    story = [
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    read = ask(url, messages=story, max_tokens=1, tool_choice="auto")["usage"]["prompt_tokens"]
    without = ask(url, messages=story[:1], max_tokens=1, tool_choice="auto")["usage"]
    assert read > without["prompt_tokens"] + 40


def _told(choice: dict[str, Any]) -> list[tuple[str, str]]:
    calls = choice["message"].get("tool_calls", [])
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
