"""What is to be downloaded: one model, its files pinned to one commit, as a value that is stored."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from app.errors import SettingsError, UnknownModel
from app.model_names import Pasted, pasted
from app.models.catalog import CatalogEntry
from app.models.downloads.partial_file import shown_bytes
from app.models.hub.client import Hub
from app.models.hub.repository import RemoteFile, Repository, read_repository
from app.models.hub.selection import check_runs, choose_files, model_name


@dataclass(frozen=True, slots=True)
class Manifest:
    """A model to download; ``name`` is its folder below the models and what a person types."""

    name: str
    repo: str
    commit: str
    files: tuple[RemoteFile, ...]
    licence: str = ""
    draft: str | None = None

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def describe(self) -> str:
        """One line for people."""
        return f"{self.name}: {len(self.files)} files of {self.repo}, {shown_bytes(self.total)}"

    def to_json(self) -> str:
        """The text that ``stored_manifest`` reads."""
        return json.dumps(asdict(self), indent=1)


def manifests_for(
    hub: Hub, catalog: Sequence[CatalogEntry], name: str, wanted: Sequence[str] = ()
) -> tuple[Manifest, ...]:
    """The model of that name, or of that repository, then its draft unless it is here already.

    ``wanted`` are names or patterns of files, in place of the usual choice. Raises UnknownModel,
    SettingsError for a model that is on this machine, ModelUnusable for files that cannot run,
    HubError and its kinds.
    """
    entry = next((entry for entry in catalog if _is_meant(entry, name, wanted)), None)
    if entry is None:
        meant = pasted(name, hub.endpoint)
        if meant is None:
            known = (entry.name for entry in catalog if entry.repo)
            raise UnknownModel(name, known, "OWNER/REPOSITORY of Hugging Face")
        if meant.repo != name:
            entry = next((e for e in catalog if _is_meant(e, meant.repo, meant.wanted)), None)
        if entry is None or meant.revision:
            return (_of_repository(hub, catalog, meant, wanted or meant.wanted),)
    if entry.folder is not None:
        return _draft(hub, catalog, entry, found=True)
    return _of_entry(hub, entry, wanted), *_draft(hub, catalog, entry, found=False)


def _is_meant(entry: CatalogEntry, name: str, wanted: Sequence[str]) -> bool:
    """By its name, or by a repository of which the shipped catalogue has it as the usual choice."""
    shipped = entry.mode is not None  # a model that a person pulled may be one file of many
    return entry.name == name or (entry.repo == name and shipped and not (entry.files or wanted))


def _draft(
    hub: Hub, catalog: Sequence[CatalogEntry], entry: CatalogEntry, *, found: bool
) -> tuple[Manifest, ...]:
    draft = next((other for other in catalog if other.name == entry.draft), None)
    if draft is not None and draft.folder is None:
        return (_of_entry(hub, draft, ()),)
    if found:
        raise SettingsError(f"{entry.name} is on this machine already, at {entry.folder}")
    return ()


def _of_entry(hub: Hub, entry: CatalogEntry, wanted: Sequence[str]) -> Manifest:
    if entry.repo is None:
        raise SettingsError(
            f"{entry.name} is not downloaded, it comes with Slipstream; reinstall it"
        )
    repository = read_repository(hub, entry.repo, entry.revision)
    files = choose_files(repository, wanted or entry.files)
    check_runs(hub, repository, files)
    order = _order(entry.name, repository, files)
    return replace(order, licence=entry.licence, draft=entry.draft)


def _of_repository(
    hub: Hub, catalog: Sequence[CatalogEntry], meant: Pasted, wanted: Sequence[str]
) -> Manifest:
    name = meant.repo
    repository = read_repository(hub, name, meant.revision or "main")
    files = choose_files(repository, wanted)
    called = model_name(repository, files)
    entries = {entry.name: entry for entry in catalog}
    if called in entries and entries[called].repo != name:  # somebody else's of that name
        called = name.replace("/", "--")
    if called in entries and entries[called].folder is not None:
        raise SettingsError(f"{called} is on this machine already, at {entries[called].folder}")
    check_runs(hub, repository, files)
    return _order(called, repository, files)


def _order(name: str, repository: Repository, files: tuple[RemoteFile, ...]) -> Manifest:
    return Manifest(name, repository.repo, repository.commit, files, repository.licence or "")


def stored_manifest(file: Path) -> Manifest | None:
    """The order that an earlier process wrote, None where there is none that can be used."""
    try:
        return TypeAdapter(Manifest).validate_json(file.read_bytes())
    except (OSError, ValueError):  # pydantic's errors among them
        return None
