"""llama.cpp's log has one way out, which outlives everybody who listened."""

import gc
import sys
from pathlib import Path

import pytest

from engine.errors import ModelUnusable
from engine.models.gguf.library import Library, llama_library
from engine.models.gguf.vocabulary import GgufVocabulary
from engine.platform.toolchain import REBUILD, REORDER
from tests.engine.models.gguf.tiny import whole

pytest.importorskip("llama_cpp")


def test_those_who_listened_can_be_forgotten(tmp_path):
    """A callback that was freed ended the process at the next line of the log."""
    heard: list[str] = []
    with llama_library().listening(lambda level, text: heard.append(text)):
        with pytest.raises(ModelUnusable):
            GgufVocabulary(tmp_path / "first")
        assert any("first" in text for text in heard)
    said = len(heard)
    gc.collect()
    with pytest.raises(ModelUnusable):
        GgufVocabulary(tmp_path / "second")
    assert len(heard) == said
    assert "second" in " ".join(llama_library().errors)


def test_a_file_whose_name_is_no_text_is_read(tmp_path):
    file = tmp_path / "l\udce9.gguf"
    file.write_bytes(whole())
    assert GgufVocabulary(file).size > 0


def test_weights_are_not_repacked_for_an_amx_that_ends_the_process():
    library = llama_library()
    assert Library(library.api).model_parameters().use_extra_bufts
    assert not Library(library.api, "GCC 12.2").model_parameters().use_extra_bufts


def test_this_library_was_compiled_rightly_by_set_up():
    """Set-up compiles it with flags of ours where that is needed: ``app.setup.bootstrap``."""
    assert llama_library().amx_left_out_by == "", f"run: {REBUILD}"


def test_this_library_was_compiled_to_be_fast_by_set_up():
    if not (Path(sys.prefix) / "slipstream-setup.txt").exists():
        pytest.skip("this environment was not made by set-up")
    assert not llama_library().spills, f"run: {REORDER}"
