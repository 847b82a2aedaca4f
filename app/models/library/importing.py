"""Import of a model that is on a disk already: linked, copied, or used where it is."""

import os
import re
import shlex
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.errors import SettingsError
from app.files import sync_folder
from app.models.catalog import ModelRecord, load_catalog, read_record
from app.models.downloads.staging import Space, Staging, link_or_copy
from app.models.gguf_check import gguf_file, ggufs, is_gguf
from app.models.hub.repository import MODEL_NAME
from app.models.hub.selection import BESIDE_WEIGHTS, SHARD
from app.models.model_check import NEEDED_FILES, check_model
from app.settings import Settings, expanded
from app.text.chat_text import ChatText
from engine.decoder.config import check_family, foreign, read_config, weight_files
from engine.errors import ModelUnusable
from engine.hardware.checkpoint_sizes import check_fits
from engine.hardware.shape import shape_of

LONGEST_OWN = 90  # characters of a name that is made; a number may follow


class Way(StrEnum):
    """How the files of an imported model are had."""

    LINK = "link"  # no second copy; a copy where the disks differ
    COPY = "copy"
    REFERENCE = "reference"  # they stay where they are, and so must not be moved


@dataclass(frozen=True, slots=True)
class Import:
    """What to import: a folder or a GGUF file; ``name`` None is made from the file's or folder's own."""

    path: Path
    name: str | None = None
    way: Way = Way.LINK
    exact: bool = True  # the name was chosen by a person; another one may get a number


def add_model(settings: Settings, asked: Import) -> str:
    """``import_model`` after all checks that loading it makes. Raises ModelUnusable besides."""
    path = expanded(asked.path).absolute()
    place = check_model(settings, path)
    if place.is_dir():
        config = read_config(place)
        check_family(str(place), config)
        if not foreign(config):
            check_fits(place, shape_of(config, str(place)))
    ChatText.load(place)
    return import_model(settings, asked)


def typed_path(text: str) -> Path:
    """A path as people paste it: in quotes, as an address, or as a shell escapes it."""
    plain = text.strip()
    if os.path.lexists(expanded(Path(plain))):
        return Path(plain)
    if plain.lower().startswith("file://"):
        return Path(unquote(urlsplit(plain).path))
    try:
        words = shlex.split(plain)
    except ValueError:  # an apostrophe in a name
        words = [plain]
    return Path(words[0] if len(words) == 1 else plain)


def import_model(settings: Settings, asked: Import) -> str:
    """Make a model of a disk available by name, which is returned.

    Raises ModelUnusable for files that cannot be run, SettingsError for a name that cannot be
    taken, DiskFull.
    """
    path = expanded(asked.path).absolute()
    files = dict(_files(path, asked.name))
    name = asked.name
    if not (name and asked.exact):
        name = _free_name(settings, name or own_name(path), path)
    _check_name(settings, name, "choose --name" if asked.exact else "use that one")
    staging = Staging(settings.models_folder, name)
    reference = str(path) if asked.way is Way.REFERENCE else None
    with staging.held():
        staging.discard()
        try:
            staging.files.mkdir(parents=True)
            if reference is None:
                _place(settings, staging, files, copied=asked.way is Way.COPY)
            ModelRecord(name, str(path), reference=reference).write(staging.files)
            staging.files.rename(staging.installed)
            sync_folder(settings.models_folder)
        finally:
            staging.discard()  # gigabytes, perhaps, of a copy that a person broke off
    return name


def is_model_folder(folder: Path) -> bool:
    """Whether a folder has what loading safetensors needs."""
    there = all(os.path.isfile(folder / name) for name in NEEDED_FILES)  # noqa: PTH113
    return there and any(folder.glob("*.safetensors"))


def shards(first: Path) -> list[Path]:
    """A GGUF file with the other parts of its model, itself alone if it has none."""
    if not SHARD.search(first.name):
        return [first]
    stem = SHARD.sub("", first.name)
    return [file for file in ggufs(first.parent) if SHARD.sub("", file.name) == stem]


def _files(path: Path, name: str | None) -> Iterator[tuple[str, Path]]:
    """Name in the new folder, and where it is now."""
    if path.is_file():
        yield from _gguf_files(path, name)
    elif is_model_folder(path):
        for file in (*weight_files(path), *(path / name for name in BESIDE_WEIGHTS)):
            if os.path.isfile(file):  # noqa: PTH113 - not a link that leads nowhere
                yield file.name, file
    elif path.is_dir():
        yield from _gguf_files(_gguf_of(path), name)
    else:
        raise ModelUnusable(f"there is no file or folder {path}")


def _gguf_files(file: Path, name: str | None) -> Iterator[tuple[str, Path]]:
    if not is_gguf(file):
        raise ModelUnusable(f"{file} is no GGUF file; give one, or a folder with *.safetensors")
    parts = shards(file)
    for part in parts:
        own = part.name if part.suffix == ".gguf" else f"{name or own_name(part)}.gguf"
        yield own, part


def _gguf_of(folder: Path) -> Path:
    found = gguf_file(folder)
    if found is None:
        raise ModelUnusable(
            f"{folder} has no model: that takes {', '.join(NEEDED_FILES)} and *.safetensors, or a *.gguf"
        )
    return found


def own_name(path: Path) -> str:
    """A name that can be typed, made from a GGUF file's without its ending, or from a folder's."""
    stem = re.sub(r"\.gguf$", "", SHARD.sub("", path.name), flags=re.IGNORECASE)
    plain = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    name = re.sub(r"[^\w.-]+", "-", plain, flags=re.ASCII).strip("-._")[:LONGEST_OWN]
    return re.sub(r"-{2,}", "-", name) or "model"


def _free_name(settings: Settings, name: str, path: Path) -> str:
    """``name``, numbered where another file has it already; the same file is refused later."""
    taken = {entry.name: entry for entry in load_catalog(settings) if entry.folder is not None}
    if name not in taken or _is_of(settings, name, path):
        return name
    return next(new for n in count(2) if (new := f"{name}-{n}") not in taken)


def _is_of(settings: Settings, name: str, path: Path) -> bool:
    record = read_record(settings.models_folder / name)
    return record is not None and record.source == str(path)


def _check_name(settings: Settings, name: str, remedy: str) -> None:
    if not MODEL_NAME.fullmatch(name):
        raise SettingsError(
            f"{name!r} cannot be a model's name; give one of letters, digits, dots and dashes"
        )
    for entry in load_catalog(settings):
        if entry.name == name and entry.folder is not None:
            raise SettingsError(f"there is a model {name} already, at {entry.folder}; {remedy}")


def _place(settings: Settings, staging: Staging, files: dict[str, Path], *, copied: bool) -> None:
    here = settings.models_folder.stat().st_dev
    foreign = [file for file in files.values() if copied or file.stat().st_dev != here]
    needed = sum(file.stat().st_size for file in foreign)
    Space(settings.models_folder).check(staging.name, needed)
    for name, file in files.items():
        link_or_copy(file, staging.files / name, copied=copied)
