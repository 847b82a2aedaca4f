"""One repository at one commit: file names, sizes and digests, checked before anything is made."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from app.errors import HubError
from app.models.hub.client import Hub

PIECE = 1 << 20


class Kind(StrEnum):
    """How a digest is computed."""

    SHA256 = "sha256"
    GIT = "git"  # sha1 over git's blob header and the content


@dataclass(frozen=True, slots=True)
class Digest:
    """What a file's content must come to; ``value`` is lower-case hexadecimal."""

    kind: Kind
    value: str

    def start(self, size: int) -> "hashlib._Hash":
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


LONGEST_PART = 200  # bytes; file systems take 255, and we add endings of our own
LONGEST = 1000
DEVICES = frozenset(
    ["con", "prn", "aux", "nul"]
    + [f"{kind}{digit}" for kind in ("com", "lpt") for digit in range(10)]
)
MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)


def check_names(repo: str, names: Iterable[str]) -> None:
    """Refuse names that leave the folder, or that two file systems would read differently.

    Raises HubError for the first bad name; two names that differ in case or in Unicode form only
    are bad, and so is a file that is another one's folder.
    """
    seen: dict[str, str] = {}
    for name in names:
        if fault := _fault(name):
            raise HubError(
                f"the repository {repo} lists the file {_shown(name)}, {fault}; nothing was downloaded"
            )
        key = _folded(name)
        if key in seen:
            raise HubError(
                f"the repository {repo} lists {_shown(seen[key])} and {_shown(name)}, which are one "
                "file on some disks; nothing was downloaded"
            )
        seen[key] = name
    for key, name in seen.items():
        if any(str(folder) in seen for folder in PurePosixPath(key).parents):
            raise HubError(
                f"the repository {repo} lists {_shown(name)} below a file; nothing was downloaded"
            )


def _fault(name: str) -> str | None:
    if not name or len(name.encode(errors="replace")) > LONGEST:
        return "a name of impossible length"
    if not name.isprintable() or "\\" in name or ":" in name:
        return "a name that is not plain text"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return "which could be written outside its folder"
        if len(part.encode(errors="replace")) > LONGEST_PART:
            return "a name of impossible length"
        if part[-1] in ". " or part.split(".")[0].lower() in DEVICES:
            return "a name that not every system can store"
    return None


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else f"{name[:80]}...")


LARGEST_SMALL = 1 << 20  # bytes; a config.json has thousands
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that the hub holds; ``name`` is a checked path below the repository, size in bytes."""

    name: str
    size: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class Repository:
    """What the hub said about ``repo``; every file is of the one ``commit``."""

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]
    gated: bool = False
    licence: str | None = None
    family: str = ""  # of its GGUF files, by llama.cpp's name, where the hub tells


class _Large(BaseModel):
    sha256: Sha256
    size: NonNegativeInt


class _File(BaseModel):
    rfilename: str
    size: NonNegativeInt | None = None
    blobId: Sha1 | None = None  # noqa: N815 - the hub's own name
    lfs: _Large | None = None


class _Answer(BaseModel):
    sha: Sha1
    siblings: list[_File]
    gated: bool | str = False
    cardData: Any = None  # noqa: N815 - the hub's own name
    gguf: Any = None


def read_repository(hub: Hub, repo: str, revision: str = "main") -> Repository:
    """Ask once, with digests; raises HubError and its kinds, before anything is on disk."""
    answer = hub.ask(f"models/{repo}/revision/{revision}", {"blobs": "true"}, repo)
    try:
        checked = _Answer.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "all of it"
        raise HubError(
            f"what {hub.host} says about {repo} cannot be used: {place}: {first['msg']}; "
            "nothing was downloaded"
        ) from error
    check_names(repo, (file.rfilename for file in checked.siblings))
    files = tuple(found for file in checked.siblings if (found := _remote(file)) is not None)
    card, inside = (
        told if isinstance(told, dict) else {} for told in (checked.cardData, checked.gguf)
    )
    return Repository(
        repo=repo,
        commit=checked.sha,
        files=files,
        gated=bool(checked.gated),
        licence=_text(card.get("license")),
        family=_text(inside.get("architecture")) or "",
    )


def read_small(
    hub: Hub, repository: Repository, name: str, largest: int = LARGEST_SMALL
) -> bytes | None:
    """The content of a file of at most ``largest`` bytes, before anything is downloaded, or None.

    Raises HubError and its kinds.
    """
    listed = next((file for file in repository.files if file.name == name), None)
    if listed is None or listed.size > largest:
        return None
    return hub.read(hub.file_address(repository.repo, repository.commit, name), repository.repo)


def _remote(file: _File) -> RemoteFile | None:
    """None without size or digest: such a file can never be checked, so it is never fetched."""
    if file.lfs is not None:
        return RemoteFile(file.rfilename, file.lfs.size, Digest(Kind.SHA256, file.lfs.sha256))
    if file.size is None or file.blobId is None:
        return None
    return RemoteFile(file.rfilename, file.size, Digest(Kind.GIT, file.blobId))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
