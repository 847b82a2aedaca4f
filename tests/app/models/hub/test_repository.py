"""What the hub says about a repository, believed only when it is well-formed."""

import pytest

from app.errors import HubError
from app.models.hub.digest import Kind
from app.models.hub.repository import read_repository


def test_files_with_sizes_and_digests_at_one_commit(hub):
    found = read_repository(hub, "org/tiny")
    files = {file.name: file for file in found.files}
    assert (found.commit, found.licence, found.gated) == ("c" * 40, "apache-2.0", False)
    assert files["model.safetensors"].digest.kind is Kind.SHA256
    assert files["model.safetensors"].size == 100_000
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
