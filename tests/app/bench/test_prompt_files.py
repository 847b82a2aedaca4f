"""Files of prompts: both known shapes are read, anything else is named by its line."""

import json

import pytest

from app.bench.prompt_files import EDIT, WORD_PROBLEM, load_prompts, read_prompts
from app.errors import PromptFileError


def test_spec_bench_and_gsm8k(tmp_path):
    file = tmp_path / "prompts.jsonl"
    rows = [{"turns": ["a", "b"], "category": "x"}, {"question": "q", "answer": "1"}]
    file.write_text("\n\n".join(map(json.dumps, rows)) + "\n")
    assert read_prompts(file) == [("a", "b"), ("q",)]
    assert read_prompts(file, limit=1) == [("a", "b")]


def test_a_line_separator_inside_a_text_is_no_new_line(tmp_path):
    """JSON may hold U+2028 as it is, and str.splitlines would cut there."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"turns": ["a\u2028b"]}\n')
    assert read_prompts(file) == [("a\u2028b",)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_prompts_may_be_in_other_encodings(tmp_path, encoding):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"turns": ["café"]}\r\n', encoding=encoding)
    assert read_prompts(file) == [("café",)]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "holds no prompts"),
        (b"\n \n", "holds no prompts"),
        (b"\x80\x00\x01", "is no text"),
        (b'{"turns": ["a"]}\n{oops', "line 2: not JSON"),
        (b"[" * 100_000, "line 1: not JSON"),
        (b"[1]", "line 1: expected an object with 'turns'"),
        (b'{"turns": []}', "expected an object with 'turns'"),
        (b'{"turns": "abc"}', "expected an object with 'turns'"),
        (b'{"prompt": "abc"}', "expected an object with 'turns'"),
        (b'{"turns": ["a", " "]}', "a text that is not empty"),
        (b'{"turns": [1]}', "a text that is not empty"),
        (b'{"turns": ["\\ud800"]}', "half a character"),
    ],
)
def test_what_cannot_be_used(tmp_path, content, sentence):
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(PromptFileError, match=sentence):
        read_prompts(file)


def test_files_that_are_not_there(tmp_path):
    for read in (read_prompts, lambda file: load_prompts(file, 5)):
        with pytest.raises(PromptFileError, match="cannot be read: No such file"):
            read(tmp_path / "none.jsonl")
        with pytest.raises(PromptFileError, match="cannot be read: Is a directory"):
            read(tmp_path)


def test_shipped_prompts_have_all_kinds():
    prompts = load_prompts(None, 12)
    assert len(prompts.problems) >= 30
    assert len(prompts.edits) >= 15
    assert {len(group) for _, group in prompts.open} == {10}
    assert len(prompts.open) == 14
    assert not {WORD_PROBLEM, EDIT} & {name for name, _ in prompts.open}
    assert len(prompts.questions(("writing", "qa"))) == 4
    assert len(prompts.questions((), 3)) == 42


def test_a_file_of_ones_own_replaces_the_open_questions(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"turns": ["a", "b"]}\n{"turns": ["c"], "category": "mine"}\n')
    prompts = load_prompts(file, 5)
    assert prompts.open == (("all", (("a",),)), ("mine", (("c",),)))
    assert prompts.questions(("writing",)) == (("a",), ("c",))
    assert prompts.problems
