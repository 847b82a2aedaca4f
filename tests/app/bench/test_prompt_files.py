"""Files of prompts: both known shapes are read, anything else is named by its line."""

import json
from pathlib import Path

import pytest

from app.bench.prompt_files import read_prompts
from app.errors import PromptFileError


def test_spec_bench_and_gsm8k(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    rows = [{"turns": ["a", "b"], "category": "x"}, {"question": "q", "answer": "1"}]
    file.write_text("\n\n".join(map(json.dumps, rows)) + "\n")
    assert read_prompts(file) == [("a", "b"), ("q",)]
    assert read_prompts(file, limit=1) == [("a", "b")]


def test_a_line_separator_inside_a_text_is_no_new_line(tmp_path: Path) -> None:
    """JSON may hold U+2028 as it is, and str.splitlines would cut there."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"turns": ["a\u2028b"]}\n')
    assert read_prompts(file) == [("a\u2028b",)]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "holds no prompts"),
        (b"\n \n", "holds no prompts"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b'{"turns": ["a"]}\n{oops', "line 2: not JSON"),
        (b"[1]", "line 1: expected an object with 'turns'"),
        (b'{"turns": []}', "expected an object with 'turns'"),
        (b'{"turns": "abc"}', "expected an object with 'turns'"),
        (b'{"prompt": "abc"}', "expected an object with 'turns'"),
        (b'{"turns": ["a", " "]}', "a text that is not empty"),
        (b'{"turns": [1]}', "a text that is not empty"),
        (b'{"turns": ["\\ud800"]}', "half a character"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(PromptFileError, match=sentence):
        read_prompts(file)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(PromptFileError, match="cannot be read: No such file"):
        read_prompts(tmp_path / "none.jsonl")
    with pytest.raises(PromptFileError, match="cannot be read: Is a directory"):
        read_prompts(tmp_path)
