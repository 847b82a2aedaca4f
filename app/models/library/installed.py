"""The models on this machine: what each one takes, removing one, and a list of all for the page."""

import os
import shutil
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.errors import ModelInUse, SettingsError, UnknownModel
from app.files import sync_folder
from app.models.catalog import CatalogEntry, load_catalog, read_record
from app.models.downloads.partial_file import shown_bytes
from app.models.downloads.staging import INCOMPLETE, Staging, abandoned, unfinished
from app.models.hub.client import has_token
from app.models.library.fit import Fit, ability, best, fits
from app.models.library.other_programs import ForeignModel, found_models
from app.models.library.simulation import without
from app.models.library.type_advice import TypeAdvice
from app.placement.machine import known_profile
from app.settings import Settings
from engine.hardware.plan import Plan


@dataclass(frozen=True, slots=True)
class Installed:
    """A model that can be loaded; sizes in bytes."""

    entry: CatalogEntry
    size: int
    frees: int  # by removing it: files that other programs share stay, and take no more room here
    bundled: bool  # came with the product
    reference: bool  # stays where another program or a person put it
    fault: str = ""  # why it cannot be loaded, as far as names and sizes of files show

    @property
    def shared(self) -> bool:
        """Whether most of its bytes belong to others, too, and removing it frees next to nothing."""
        return self.frees < self.size / 2


@dataclass(frozen=True, slots=True)
class Removed:
    """What removing did; ``idle_draft`` is a draft that no other model here uses any more."""

    name: str
    freed: int
    idle_draft: str | None = None
    shared: bool = False  # most of its files stay, as others use them

    @property
    def room(self) -> str:
        """How much room that made, in words."""
        if self.shared:
            return "its files stay where other programs use them"
        return f"{shown_bytes(self.freed)} are free again"


def installed_models(settings: Settings) -> tuple[Installed, ...]:
    """Every model of the catalogue and of the models' folder that is here."""
    return tuple(
        _installed(settings, entry, entry.folder)
        for entry in load_catalog(settings)
        if entry.folder is not None
    )


def remove_model(settings: Settings, name: str, in_use: Collection[str] = ()) -> Removed:
    """Take away a model, an unfinished download, or what a killed import left.

    ``in_use`` are names that something has loaded.

    Raises UnknownModel, ModelInUse, SettingsError for a model of the box, DownloadFailed while
    another process downloads it.
    """
    models = installed_models(settings)
    found = next((model for model in models if model.entry.name == name), None)
    if found is None:
        return _remove_unfinished(settings, name, [model.entry.name for model in models])
    if found.bundled:
        raise SettingsError(f"{name} comes with Slipstream and stays; other models can be removed")
    if name in in_use:
        raise ModelInUse(
            f"{name} is loaded now; choose another model first, then remove it to free "
            f"{shown_bytes(found.frees)}"
        )
    _take_away(settings, Staging(settings.models_folder, name))
    rest = [model.entry for model in models if model.entry.name != name]
    return Removed(name, found.frees, _idle_draft(found.entry, rest), found.shared)


def _installed(settings: Settings, entry: CatalogEntry, folder: Path) -> Installed:
    own = settings.models_folder / entry.name
    record = read_record(own)
    reference = record is not None and record.reference is not None
    bundled = not reference and not folder.is_relative_to(settings.models_folder)
    sizes, fault = _sizes(folder)
    alone = sum(size.st_size for size in sizes if size.st_nlink == 1)
    return Installed(
        entry=entry,
        size=sum(size.st_size for size in sizes),
        frees=0 if reference or bundled else alone,
        bundled=bundled,
        reference=reference,
        fault=fault,
    )


def _sizes(place: Path) -> tuple[list[os.stat_result], str]:
    """Of every file that can be looked at, and a word on the first that cannot."""
    sizes: list[os.stat_result] = []
    fault = ""
    try:
        files = list(place.rglob("*")) if place.is_dir() else []
    except OSError as error:
        return sizes, f"{place} cannot be read: {error.strerror}"
    for file in files or [place]:
        try:
            found = file.stat()
        except OSError as error:
            fault = fault or _gone(file, error)
            continue
        if stat.S_ISREG(found.st_mode):
            sizes.append(found)
    return sizes, fault


def _gone(file: Path, error: OSError) -> str:
    if file.is_symlink():
        return f"{file} is a link that leads nowhere"
    gone = isinstance(error, FileNotFoundError)
    return f"{file} is gone" if gone else f"{file} cannot be read: {error.strerror}"


def _remove_unfinished(settings: Settings, name: str, known: Collection[str]) -> Removed:
    left = {staging.name for staging in abandoned(settings.models_folder)}
    known_orders = {order.name for order in unfinished(settings.models_folder)}
    if name not in left | known_orders:
        raise UnknownModel(name, known)
    return Removed(name, Staging(settings.models_folder, name).discard_unlocked())


def _take_away(settings: Settings, staging: Staging) -> None:
    """Out of sight in one step, then deleted: a crash leaves no half of a model."""
    grave = settings.models_folder / INCOMPLETE / f"{staging.name}.removed"
    grave.parent.mkdir(exist_ok=True)
    staging.discard_unlocked()  # an order that outlived its download would come back to light
    for left in grave.parent.glob("*.removed"):  # of a process that was killed here
        shutil.rmtree(left, ignore_errors=True)
    staging.installed.rename(grave)
    sync_folder(settings.models_folder)
    shutil.rmtree(grave, ignore_errors=True)


def _idle_draft(gone: CatalogEntry, rest: Collection[CatalogEntry]) -> str | None:
    here = {entry.name for entry in rest if entry.repo is not None}
    if gone.draft not in here or any(entry.draft == gone.draft for entry in rest):
        return None
    return gone.draft


@dataclass(frozen=True, slots=True)
class Inventory:
    """For the screen of models; nothing of it is asked of the network."""

    installed: tuple[Installed, ...]  # with drafts, but not those of the box
    elsewhere: tuple[ForeignModel, ...]  # of other programs
    offered: tuple[Fit, ...]  # in the catalogue, and not here
    suggested: Fit | None  # better than everything that is here
    token: bool  # whether one is kept or in the environment
    advice: Mapping[str, str]  # name of a GGUF model -> a sentence, where another type is faster
    unmeasured: str  # how to measure which type is fastest; empty where that is known


def read_inventory(settings: Settings, loaded: Plan | None = None) -> Inventory:
    """Read the disk and look at the machine, as it is without the model that is ``loaded`` now."""
    here = installed_models(settings)
    folders = [model.entry.folder for model in here if model.entry.folder is not None]
    offered, types = _offered(settings, loaded), TypeAdvice.read(settings)
    entries = (*(model.entry for model in here), *(fit.entry for fit in offered))
    return Inventory(
        installed=tuple(model for model in here if model.entry.visible or not model.bundled),
        elsewhere=found_models(settings.others, folders),
        offered=offered,
        suggested=_better(best(offered), here),
        token=has_token(settings),
        advice={entry.name: said for entry in entries if (said := types.of_entry(entry))},
        unmeasured=types.missing,
    )


def suggestion(settings: Settings, loaded: Plan | None = None) -> Fit | None:
    """The best model for this machine that is not here; None where nothing better fits."""
    return _better(best(_offered(settings, loaded)), installed_models(settings))


def _offered(settings: Settings, loaded: Plan | None) -> tuple[Fit, ...]:
    return fits(load_catalog(settings), without(known_profile(settings), loaded))


def _better(chosen: Fit | None, here: tuple[Installed, ...]) -> Fit | None:
    most = max((ability(model.entry) for model in here), default=0.0)
    return chosen if chosen is not None and ability(chosen.entry) > most else None
