"""One repository at one commit: its files with sizes and digests, checked before anything is made."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from app.errors import HubError
from app.models.hub.client import Hub
from app.models.hub.digest import Digest, Kind
from app.models.hub.names import check_names

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
    cardData: dict[str, Any] | None = None  # noqa: N815 - the hub's own name


def read_repository(hub: Hub, repo: str, revision: str = "main") -> Repository:
    """Ask once, with digests; raises HubError and its kinds, before anything is on disk."""
    answer = hub.ask(f"models/{repo}/revision/{revision}", {"blobs": "true"}, repo)
    try:
        checked = _Answer.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise HubError(
            f"what {hub.host} says about {repo} cannot be used: {place}: {first['msg']}; "
            "nothing was downloaded"
        ) from error
    check_names(repo, (file.rfilename for file in checked.siblings))
    files = tuple(found for file in checked.siblings if (found := _remote(file)) is not None)
    card = checked.cardData or {}
    return Repository(repo, checked.sha, files, bool(checked.gated), _text(card.get("license")))


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
