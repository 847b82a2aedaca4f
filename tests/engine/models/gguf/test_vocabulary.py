"""Vocabularies of GGUF files, and the library that reads them."""

import gc
import os
import sys
from pathlib import Path

import pytest

from app.text.vocabulary import FileVocabulary
from engine.errors import ModelUnusable
from engine.models.gguf.library import Library, compiled_parts, llama_library
from engine.models.gguf.vocabulary import GgufVocabulary, vocabulary_mismatch
from engine.platform.toolchain import REBUILD, REORDER
from tests.bundled import POCKET, POCKET_DRAFT
from tests.engine.models.gguf import tiny
from tests.engine.models.gguf.files import exported, random_gguf

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
    """llama.cpp calls them text, so a message could contain one."""

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


def test_a_folder_and_its_gguf_are_the_same(tmp_path):
    file = exported(POCKET_DRAFT, tmp_path / "draft.gguf")
    assert vocabulary_mismatch(POCKET, file) == ""
    assert vocabulary_mismatch(file, POCKET) == ""


def test_the_first_mismatch_is_named(tmp_path):
    texts = [f"t{i}" for i in range(64)]
    ours = random_gguf(tmp_path / "a.gguf")
    theirs = random_gguf(tmp_path / "b.gguf", vocab=[*texts[:17], "x", "y", *texts[19:]])
    assert vocabulary_mismatch(ours, ours) == ""
    found = vocabulary_mismatch(ours, theirs)
    assert found == "token 17 is 't17' in the model and 'x' in the draft model"


def test_a_file_is_gguf_under_any_name(tmp_path):
    named = random_gguf(tmp_path / "a.gguf")
    digest = named.rename(tmp_path / "sha256-3f2a")
    assert vocabulary_mismatch(digest, digest) == ""


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(ModelUnusable, match=r"tokenizer.json is missing"):
        vocabulary_mismatch(POCKET, tmp_path)


# The library: its log has one way out, which outlives every listener.


def test_a_listener_can_be_forgotten(tmp_path):
    """A callback that was freed ended the process at the next line of the log."""
    lines: list[str] = []
    with llama_library().listening(lambda level, text: lines.append(text)):
        with pytest.raises(ModelUnusable):
            GgufVocabulary(tmp_path / "first")
        assert any("first" in text for text in lines)
    said = len(lines)
    gc.collect()
    with pytest.raises(ModelUnusable):
        GgufVocabulary(tmp_path / "second")
    assert len(lines) == said
    assert "second" in " ".join(llama_library().errors)


def test_a_file_whose_name_is_no_text_is_read(tmp_path):
    file = tmp_path / "l\udce9.gguf"
    file.write_bytes(tiny.whole())
    assert GgufVocabulary(file).size > 0


def test_weights_are_not_repacked_for_an_amx_that_ends_the_process():
    library = llama_library()
    assert Library(library.api).model_parameters().use_extra_bufts
    assert not Library(library.api, "GCC 12.2").model_parameters().use_extra_bufts


def test_set_up_compiled_this_library_rightly_and_fast():
    assert llama_library().amx_left_out_by == "", f"run: {REBUILD}"
    if not (Path(sys.prefix) / "slipstream-setup.txt").exists():
        pytest.skip("this environment was not made by set-up")
    assert not llama_library().spills, f"run: {REORDER}"
    assert not llama_library().rounds_apart, f"run: {REORDER}"


@pytest.mark.parametrize("name", [b"m.gguf", b"ggml-model-f16.gguf", b"ggml-caf\xe9.gguf"])
def test_of_what_is_mapped_only_the_library_is_read(tmp_path, monkeypatch, name):
    """A model of such a name was read as a whole, and one in another encoding ended its load."""
    for file in (b"libggml-cpu.so.0", name):
        (tmp_path / os.fsdecode(file)).write_bytes(b"code" if b".so" in file else b"weights")
    lines = [
        b"0-1 r--p 0 0:0 1    " + os.fsencode(tmp_path) + b"/" + file
        for file in (b"libggml-cpu.so.0", name)
    ]
    (tmp_path / "maps").write_bytes(b"\n".join(lines))
    monkeypatch.setattr("engine.models.gguf.library.MAPS", tmp_path / "maps")
    assert [*compiled_parts()] == [b"code"]
