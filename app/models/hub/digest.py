"""Digests of a file as the hub states them: sha256 of large files, git's blob id of small ones."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

PIECE = 1 << 20


class Kind(StrEnum):
    """How a digest is computed."""

    SHA256 = "sha256"
    GIT = "git"  # sha1 over git's blob header and the content


class Hash(Protocol):
    """The part of hashlib's objects that is used."""

    def update(self, data: bytes, /) -> None:
        """Take in more of the file."""
        ...

    def hexdigest(self) -> str:
        """The digest of what was taken in."""
        ...


@dataclass(frozen=True, slots=True)
class Digest:
    """What a file's content must come to; ``value`` is lower-case hexadecimal."""

    kind: Kind
    value: str

    def start(self, size: int) -> Hash:
        """A running hash of a file of ``size`` bytes, nothing taken in yet."""
        if self.kind is Kind.SHA256:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)

    def matches(self, file: Path) -> bool:
        """Whether the file on disk has this content."""
        running = self.start(file.stat().st_size)
        with file.open("rb") as content:
            while piece := content.read(PIECE):
                running.update(piece)
        return running.hexdigest() == self.value
