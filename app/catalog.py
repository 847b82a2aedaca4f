"""models.yaml, and from a name or a folder to what the engine needs to load a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import SettingsError, UnknownModel
from app.settings import Settings
from engine.errors import ModelUnusable
from engine.request import ModelSpec

PACKAGE = Path(__file__).resolve().parent
FIELDS = {
    "name": str,
    "description": str,
    "folder": str,
    "licence": str,
    "draft": str,
    "exit_layer": int,
    "acceptance_head": str,
    "visible": bool,
}
REQUIRED = ("name", "description", "folder", "licence")
NEEDED_FILES = ("config.json", "tokenizer.json")
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model that can be asked for by name; ``folder`` is None while it is not on this machine."""

    name: str
    description: str
    folder: Path | None
    draft: str | None = None  # name of the entry that drafts for this one
    exit_layer: int | None = None
    acceptance_head: Path | None = None  # of this entry with its own draft
    licence: str = ""
    visible: bool = True


def load_catalog(settings: Settings) -> tuple[CatalogEntry, ...]:
    """Every entry of the product's models.yaml, in its order."""
    # A wheel has the file inside the package, a checkout beside it.
    inside = PACKAGE / "models.yaml"
    file = inside if inside.exists() else PACKAGE.parent / "models.yaml"
    return read_catalog(file, (PACKAGE.parent, settings.models_folder))


def read_catalog(file: Path, roots: Sequence[Path]) -> tuple[CatalogEntry, ...]:
    """The entries of ``file``; a folder is looked for under each of ``roots`` in turn."""
    rows = _rows(file)
    for number, row in enumerate(rows, start=1):
        _check_row(f"{file.name}, entry {number}", row)
    entries = tuple(_entry(row, roots) for row in rows)
    _check_names(file, entries)
    return entries


def resolve(settings: Settings, name_or_path: str, draft: str | None = None) -> ModelSpec:
    """What to load for a catalogue name or a folder's path; ``draft`` overrides the entry's own.

    Raises UnknownModel for a name nobody knows, ModelUnusable for files that cannot be loaded.
    """
    catalog = load_catalog(settings)
    entry = find_entry(catalog, name_or_path)
    drafting = draft or entry.draft
    head = entry.acceptance_head if drafting == entry.draft else None
    return ModelSpec(
        name=entry.name,
        folder=str(_loadable(entry)),
        draft_folder=str(_loadable(find_entry(catalog, drafting))) if drafting else None,
        exit_layer=entry.exit_layer,
        acceptance_head=None if head is None else str(head),
    )


def find_entry(catalog: Sequence[CatalogEntry], name_or_path: str) -> CatalogEntry:
    """The entry of that name, or a new entry for a path on this machine."""
    for entry in catalog:
        if entry.name == name_or_path:
            return entry
    path = Path(name_or_path).expanduser()
    if not name_or_path or not (path.exists() or _looks_like_path(name_or_path)):
        raise UnknownModel(name_or_path, (entry.name for entry in catalog))
    path = path.absolute()
    return CatalogEntry(path.name, f"the folder {path}", path, licence="see the folder")


def _rows(file: Path) -> list[Any]:
    import yaml  # here, because most commands never read the catalogue

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the catalogue {file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"the catalogue {file} is not YAML: {error}") from error
    rows = content.get("models") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise SettingsError(f"the catalogue {file} needs a list named 'models'")
    return rows


def _check_row(place: str, row: object) -> None:
    if not isinstance(row, dict):
        raise SettingsError(f"{place}: expected fields, found {row!r}")
    if missing := [field for field in REQUIRED if field not in row]:
        raise SettingsError(f"{place}: missing {', '.join(missing)}")
    for field, value in row.items():
        if field not in FIELDS:
            raise SettingsError(f"{place}: unknown field {field!r}; known: {', '.join(FIELDS)}")
        # type(), since True is an int for isinstance
        if type(value) is not FIELDS[field]:
            raise SettingsError(
                f"{place}: {field} must be a {FIELDS[field].__name__}, not {value!r}"
            )


def _entry(row: dict[str, Any], roots: Sequence[Path]) -> CatalogEntry:
    found: dict[str, Path | None] = {}
    for field in {"folder", "acceptance_head"} & set(row):
        places = (root / row[field] for root in roots)
        found[field] = next(filter(Path.is_dir, places), None)
    return CatalogEntry(**{**row, **found})


def _check_names(file: Path, entries: Sequence[CatalogEntry]) -> None:
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{file.name}: the name {name!r} stands there twice")
    for entry in entries:
        if entry.draft is not None and entry.draft not in names:
            raise SettingsError(f"{file.name}: {entry.name} drafts with {entry.draft!r}, no entry")


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "~")) or "/" in text or "\\" in text or text.endswith(".gguf")


def _loadable(entry: CatalogEntry) -> Path:
    """The entry's folder, once everything that loading needs is known to be in it."""
    if entry.folder is None:
        raise ModelUnusable(f"the model {entry.name} is not on this machine")
    if not entry.folder.is_dir():
        raise ModelUnusable(_no_folder(entry.folder))
    _check_files(entry.folder, {path.name for path in entry.folder.iterdir()})
    return entry.folder


def _no_folder(path: Path) -> str:
    if path.suffix == ".gguf":
        return _gguf_refusal(path)
    if path.exists():
        return f"{path} is a file; give the folder that holds config.json and *.safetensors"
    return f"there is no folder {path}"


def _gguf_refusal(place: Path) -> str:
    return (
        f"{place}: GGUF files cannot be run yet; use a folder with config.json, tokenizer.json "
        "and *.safetensors"
    )


def _check_files(folder: Path, names: set[str]) -> None:
    suffixes = {Path(name).suffix for name in names}
    missing = [name for name in NEEDED_FILES if name not in names]
    if ".safetensors" in suffixes:
        if missing:
            raise ModelUnusable(f"the folder {folder} lacks {' and '.join(missing)}")
        return
    if ".gguf" in suffixes:
        raise ModelUnusable(_gguf_refusal(folder))
    if pickles := sorted(name for name in names if Path(name).suffix in PICKLE_SUFFIXES):
        raise ModelUnusable(
            f"the folder {folder} has its weights as {pickles[0]}, a format that can run code "
            "when it is opened; get the model as *.safetensors"
        )
    lacking = f"{', '.join(missing)} and *.safetensors" if missing else "*.safetensors"
    raise ModelUnusable(f"the folder {folder} lacks {lacking}")
