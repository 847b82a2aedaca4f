"""Names that a repository may not have here; the rest is free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import HubError
from app.models.hub.names import check_names, is_repository

BAD = ["../../.bashrc", "a/../b", "..", "/etc/passwd", "C:\\x", "C:x", "\\\\host\\share\\x", "a\\b", "a\0b", "a\nb",
       "", "a//b", "./a", "a" * 201, "a/" * 600 + "a", "con.txt", "sub/NUL", "lpt1.gguf", "name.", "name ", "a\u202eb", "x:y"]  # fmt: skip


@pytest.mark.parametrize("name", BAD, ids=lambda name: ascii(name)[:30])
def test_a_bad_name_is_refused(name):
    with pytest.raises(HubError, match="nothing was downloaded"):
        check_names("org/x", ["config.json", name])


@pytest.mark.parametrize(
    "names",
    [["A.json", "a.json"], ["\u00e9.json", "e\u0301.json"], ["a", "a/b.json"], ["A/b", "a"]],
)
def test_twins_are_refused(names):
    with pytest.raises(HubError, match="nothing was downloaded"):
        check_names("org/x", names)


def test_ordinary_names_pass():
    check_names(
        "org/x", ["config.json", "a/b/c.gguf", ".gitattributes", "model-00001-of-00002.safetensors"]
    )


@given(st.text(max_size=60))
def test_whatever_passes_stays_inside_its_folder(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp()
    try:
        check_names("org/x", [name])
    except HubError:
        return
    assert (folder / name).resolve().is_relative_to(folder.resolve())
    assert (folder / name).resolve() != folder.resolve()


@pytest.mark.parametrize(
    ("text", "good"),
    [("Qwen/Qwen3-0.6B", True), ("gpt2", True), ("a/b/c", False), ("../x", False), ("a/..", False),
     ("a b/c", False), ("", False), ("a/", False), ("https://huggingface.co/a/b", False)],
)  # fmt: skip
def test_repository_names(text, good):
    assert is_repository(text) is good
