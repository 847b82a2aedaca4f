"""Vocabularies are compared token by token, across kinds of file."""

from pathlib import Path

import pytest

from engine.errors import ModelUnusable
from engine.models.pairing import vocabulary_mismatch
from tests.engine.models.gguf.files import exported, random_gguf

BUNDLED = Path(__file__).parents[3] / "engine/bundled"


def test_a_folder_and_its_gguf_are_the_same(tmp_path):
    file = exported(BUNDLED / "pocket-draft", tmp_path / "draft.gguf")
    assert vocabulary_mismatch(BUNDLED / "pocket", file) == ""
    assert vocabulary_mismatch(file, BUNDLED / "pocket") == ""


def test_the_first_mismatch_is_told(tmp_path):
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
        vocabulary_mismatch(BUNDLED / "pocket", tmp_path)
