"""A closer look at one repository of the hub: what can be downloaded, and whether it fits here."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from app.errors import AccessDenied, UnknownRepository
from app.model_names import is_repository
from app.models.catalog import CatalogEntry, load_catalog
from app.models.gguf_check import beside_a_model
from app.models.hub.client import Hub
from app.models.hub.repository import (
    RemoteFile,
    Repository,
    read_repository,
    read_small,
)
from app.models.hub.selection import SHARD, check_parts, check_runs, choose_files
from app.models.library.fit import Found, Offer, Unplanned, by_size, planned, shape_forms
from app.models.library.simulation import without
from app.models.library.type_advice import TypeAdvice
from app.placement.machine import known_profile
from app.settings import Settings
from engine.decoder.config import foreign
from engine.errors import ModelUnusable
from engine.hardware.plan import Candidates, Plan
from engine.hardware.profile import HardwareProfile
from engine.hardware.shape import shape_of


@dataclass(frozen=True, slots=True)
class Choice(Offer):
    """One model in a repository; ``files`` are names for the order, none for the usual choice."""

    label: str
    files: tuple[str, ...]
    advice: str = ""  # on a faster type of equal quality; empty: there is none


@dataclass(frozen=True, slots=True)
class RepositoryView:
    """What the hub said, read against this machine."""

    repo: str
    licence: str | None
    gated: bool
    choices: tuple[Choice, ...]
    known: CatalogEntry | None  # the catalogue's entry for this repository


def inspect_repository(
    settings: Settings, hub: Hub, repo: str, loaded: Plan | None = None
) -> RepositoryView:
    """Ask the hub for the files and the config of ``repo``; raises HubError and its kinds."""
    if not is_repository(repo):
        raise UnknownRepository(f"{repo!r} is no repository; one looks like Qwen/Qwen3-0.6B")
    repository = read_repository(hub, repo)
    machine = without(known_profile(settings), loaded)
    entries = (entry for entry in load_catalog(settings) if entry.repo == repo)
    return RepositoryView(
        repo=repo,
        licence=repository.licence,
        gated=repository.gated,
        choices=tuple(_advised(_choices(hub, repository, machine), TypeAdvice.read(settings))),
        known=next(entries, None),
    )


def _choices(hub: Hub, repository: Repository, machine: HardwareProfile) -> Iterator[Choice]:
    """The folder of safetensors, or each GGUF model, the smallest first."""
    if any(file.name.endswith(".safetensors") for file in repository.files):
        files = choose_files(repository)
        found = _of_folder(hub, repository, files, machine)
        yield Choice(_size(files), found, "safetensors", ())
        return
    models: dict[str, list[RemoteFile]] = {}
    for file in repository.files:
        if file.name.endswith(".gguf") and not beside_a_model(file.name):
            models.setdefault(SHARD.sub("", file.name), []).append(file)
    if not models:
        choose_files(repository)  # says what is there instead
    for name, parts in sorted(models.items(), key=lambda one: _size(one[1])):
        stem = name.removesuffix(".gguf")
        pattern = (name,) if _is_one(repository, name) else (f"{stem}-*.gguf",)
        found = _of_parts(repository, parts, machine)
        yield Choice(_size(parts), found, stem.rpartition("/")[2], pattern)


def _advised(choices: Iterable[Choice], types: TypeAdvice) -> Iterator[Choice]:
    """Each with a word on the others where one of them is faster here."""
    listed = tuple(choices)
    names = [choice.label for choice in listed if choice.runs]
    for choice in listed:
        yield replace(choice, advice=types.of_file(choice.label, names))


def _size(files: Iterable[RemoteFile]) -> int:
    return sum(file.size for file in files)


def _of_parts(
    repository: Repository, parts: Sequence[RemoteFile], machine: HardwareProfile
) -> Found:
    try:
        check_parts(repository, parts)
    except ModelUnusable as error:
        return Unplanned(fits=False, sentence=str(error))
    return by_size(_size(parts), machine)


def _of_folder(
    hub: Hub, repository: Repository, files: Sequence[RemoteFile], machine: HardwareProfile
) -> Found:
    try:
        check_runs(hub, repository, files)
    except ModelUnusable as error:
        return Unplanned(fits=False, sentence=str(error))
    return _of_config(hub, repository, machine, _size(files))


def _is_one(repository: Repository, name: str) -> bool:
    return any(file.name == name for file in repository.files)


def _of_config(hub: Hub, repository: Repository, machine: HardwareProfile, size: int) -> Found:
    """By the planner for families of the own decoder; others are judged by their size."""
    try:
        written = read_small(hub, repository, "config.json")
    except AccessDenied:  # the listing is open, the files are not
        return by_size(size, machine)
    try:
        config = json.loads(written or b"")
        if foreign(config):
            return by_size(size, machine)
        forms = shape_forms(repository.repo, shape_of(config, repository.repo), None)
    except (ValueError, AttributeError, RecursionError, ModelUnusable):
        return Unplanned(fits=False, sentence="Its config.json cannot be read, so it cannot run.")
    return planned(Candidates(repository.repo, forms), machine)
