"""What the hub says about repositories, believed only when it is well-formed."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import HubError
from app.model_names import is_repository
from app.models.hub.repository import Digest, Kind, check_names, read_repository
from app.models.hub.search import search

LONG = bytes(range(256)) * 10_000  # several pieces


@pytest.mark.parametrize(
    ("kind", "data", "digest"),
    [
        (Kind.GIT, b"hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"),  # git hash-object
        (Kind.SHA256, LONG, hashlib.sha256(LONG).hexdigest()),
    ],
)
def test_a_digest_matches_its_file_only(tmp_path, kind, data, digest):
    file = tmp_path / "x"
    file.write_bytes(data)
    assert Digest(kind, digest).matches(file)
    file.write_bytes(data.replace(b"o", b"O"))
    assert not Digest(kind, digest).matches(file)


BAD = ["../../.bashrc", "a/../b", "..", "/etc/passwd", "C:\\x", "C:x", "\\\\host\\share\\x", "a\\b", "a\0b", "a\nb",
       "", "a//b", "./a", "a" * 201, "a/" * 600 + "a", "con.txt", "sub/NUL", "lpt1.gguf", "name.", "name ", "a\u202eb", "x:y"]  # fmt: skip


ORDINARY = ["config.json", "a/b/c.gguf", ".gitattributes", "model-00001-of-00002.safetensors"]


@pytest.mark.parametrize("name", BAD, ids=lambda name: ascii(name)[:30])
def test_a_bad_name_is_refused_among_ordinary_ones_that_pass(name):
    check_names("org/x", ORDINARY)
    with pytest.raises(HubError, match="nothing was downloaded"):
        check_names("org/x", [*ORDINARY, name])


@pytest.mark.parametrize(
    "names",
    [["A.json", "a.json"], ["\u00e9.json", "e\u0301.json"], ["a", "a/b.json"], ["A/b", "a"]],
)
def test_twins_are_refused(names):
    with pytest.raises(HubError, match="nothing was downloaded"):
        check_names("org/x", names)


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


def test_files_with_sizes_and_digests_at_one_commit(hub):
    found = read_repository(hub, "org/tiny")
    files = {file.name: file for file in found.files}
    assert (found.commit, found.licence, found.gated) == ("c" * 40, "apache-2.0", False)
    assert files["model.safetensors"].digest.kind is Kind.SHA256
    assert files["model.safetensors"].size == 2 << 20
    assert files["config.json"].digest.kind is Kind.GIT


def broken(change):
    """An answer in which ``change`` was made to the large file's row."""

    def listing(answer):
        change(
            answer, next(row for row in answer["siblings"] if row["rfilename"].endswith("tensors"))
        )
        return answer

    return listing


@pytest.mark.parametrize("value", ["0" * 63, "0" * 65, "../x", "/abs", "A" * 64, "", '"' + "0" * 63, "0" * 63 + "\n", "0" * 64 + "\n", None, 1])  # fmt: skip
def test_a_malformed_digest_is_refused_before_anything(hub, stand_in, value):
    stand_in.repos["org/tiny"].listing = broken(lambda _, row: row["lfs"].update(sha256=value))
    with pytest.raises(HubError, match="lfs.sha256"):
        read_repository(hub, "org/tiny")


@pytest.mark.parametrize("change", [
    lambda answer, row: answer.update(sha="main"),
    lambda answer, row: answer.pop("sha"),
    lambda answer, row: answer.pop("siblings"),
    lambda answer, row: row["lfs"].update(size=-1),
    lambda answer, row: row.update(size="many"),
    lambda answer, row: row.update(blobId="../../x"),
    lambda answer, row: row.update(rfilename="../../x.safetensors"),
    lambda answer, row: row.update(rfilename="/x.safetensors"),
])  # fmt: skip
def test_an_answer_that_cannot_be_used_is_refused(hub, stand_in, change):
    stand_in.repos["org/tiny"].listing = broken(change)
    with pytest.raises(HubError, match="nothing was downloaded"):
        read_repository(hub, "org/tiny")


def test_a_file_without_a_digest_is_no_file(hub, stand_in):
    stand_in.repos["org/tiny"].listing = broken(lambda _, row: row.update(lfs=None, blobId=None))
    assert not [file for file in read_repository(hub, "org/tiny").files if "tensors" in file.name]


# --- search ---------------------------------------------------------------------------------------

ROWS = [
    {"id": "org/small", "downloads": 5, "tags": ["safetensors", "license:mit"], "gated": False,
     "safetensors": {"parameters": {"BF16": 1000, "F32": 10}, "total": 1010}},
    {"id": "org/odd", "tags": ["safetensors"], "safetensors": {"parameters": {"X9": 5}, "total": 5}},
    {"id": "org/m-GGUF", "tags": ["gguf"], "gated": "manual", "gguf": {"total": 77}},
    {"id": "org/pickled", "tags": ["pytorch"]},
    {"id": "org/embeds", "tags": ["gguf"], "gguf": {"architecture": "bert"}},
    {"id": "../evil", "tags": ["gguf"]},
]  # fmt: skip


def test_search_finds_what_can_run_with_its_size(hub, stand_in):
    stand_in.rows = ROWS
    small, odd, gguf = search(hub, "llama 1b", 3)
    assert (small.repo, small.size, small.licence, small.downloads) == ("org/small", 2040, "mit", 5)
    assert (odd.size, odd.parameters) == (None, 5)
    assert (gguf.gguf, gguf.gated, gguf.parameters) == (True, True, 77)
    [query] = stand_in.searched
    assert (query["search"], query["limit"]) == (["llama 1b"], ["3"])


@pytest.mark.parametrize("rows", [[{"no": "id"}], [1], [{"id": "a/b", "downloads": "many"}]])
def test_a_search_answer_that_cannot_be_used_is_one_sentence(hub, stand_in, rows):
    stand_in.rows = rows
    with pytest.raises(HubError, match="cannot be used"):
        search(hub, "x")
