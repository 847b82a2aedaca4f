"""Vocabularies of GGUF files: which tokens only a template may write, and which end an answer."""

from pathlib import Path

import pytest

from app.text.vocabulary import FileVocabulary
from engine.models.gguf.vocabulary import GgufVocabulary
from tests.engine.models.gguf import tiny

pytest.importorskip("llama_cpp")

CONTROL = (
    "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>",
    "<|message|>", "<|call|>",
)  # fmt: skip


def vocabulary(folder: Path, monkeypatch: pytest.MonkeyPatch, control: tuple[str, ...]) -> Path:
    said = tiny.byte_level(control, eos=1)
    monkeypatch.setattr(tiny, "metadata", lambda: said)
    return tiny.write(folder / "tiny.gguf")


class TestTokensAroundChannels:
    """llama.cpp tells programs that they are text, so anybody could write one in a message."""

    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        return vocabulary(tmp_path, monkeypatch, CONTROL)

    def test_are_control_tokens_without_text(self, file: Path) -> None:
        found = FileVocabulary(file)
        assert {*found.control_texts()} == {*CONTROL}
        assert [found.bytes.of(token) for token in range(len(CONTROL))] == [b""] * len(CONTROL)
        assert [found.encode(text) for text in CONTROL] == [[n] for n in range(len(CONTROL))]

    def test_that_a_person_types_are_text(self, file: Path) -> None:
        found = FileVocabulary(file)
        for text in (*CONTROL, f"ab{CONTROL[4]}é☃{CONTROL[3]}ab"):
            ids = found.encode_typed(text)
            assert min(ids) >= len(CONTROL)
            assert b"".join(map(found.bytes.of, ids)).decode() == text

    def test_end_no_answer(self, file: Path) -> None:
        ends = {CONTROL.index(text) for text in ("<|return|>", "<|call|>", "<|endoftext|>")}
        assert GgufVocabulary(file).ends == ends


def test_one_of_them_alone_is_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = vocabulary(tmp_path, monkeypatch, ("<|endoftext|>", "<|end|>", "<|return|>"))
    found = FileVocabulary(file)
    assert {*found.control_texts()} == {"<|endoftext|>", "<|end|>", "<|return|>"}
    assert found.encode("<|channel|>") == found.encode_typed("<|channel|>")
    assert b"".join(map(found.bytes.of, found.encode("<|channel|>"))) == b"<|channel|>"
