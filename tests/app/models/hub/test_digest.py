"""Digests as the tools themselves compute them."""

import hashlib

from app.models.hub.digest import Digest, Kind


def test_gits_own_example(tmp_path):
    """The id that `git hash-object` gives for this line."""
    file = tmp_path / "x"
    file.write_bytes(b"hello\n")
    digest = Digest(Kind.GIT, "ce013625030ba8dba906f756967f9e9ca394464a")
    assert digest.matches(file)
    file.write_bytes(b"hellO\n")
    assert not digest.matches(file)


def test_sha256_over_several_pieces(tmp_path):
    data = bytes(range(256)) * 10_000
    (tmp_path / "x").write_bytes(data)
    assert Digest(Kind.SHA256, hashlib.sha256(data).hexdigest()).matches(tmp_path / "x")
