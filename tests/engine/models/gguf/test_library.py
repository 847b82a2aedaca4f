"""llama.cpp's log has one way out, which outlives everybody who listened."""

import gc

import pytest

from engine.errors import ModelUnusable
from engine.models.gguf.library import llama_library
from engine.models.gguf.vocabulary import GgufVocabulary

pytest.importorskip("llama_cpp")


def test_those_who_listened_can_be_forgotten(tmp_path):
    """A callback that was freed ended the process at the next line of the log."""
    heard: list[str] = []
    with llama_library().heard(lambda level, text: heard.append(text)):
        with pytest.raises(ModelUnusable):
            GgufVocabulary(tmp_path / "first")
        assert any("first" in text for text in heard)
    said = len(heard)
    gc.collect()
    with pytest.raises(ModelUnusable):
        GgufVocabulary(tmp_path / "second")
    assert len(heard) == said
    assert "second" in " ".join(llama_library().errors)
