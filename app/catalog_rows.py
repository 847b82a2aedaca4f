"""The entries of models.yaml as they are written, each field checked."""

import re
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from engine.hardware.shape import LayerKinds, ModelShape

FIELDS = {
    "name": str,
    "description": str,
    "folder": str,
    "licence": str,
    "draft": str,
    "exit_layer": int,
    "acceptance_head": str,
    "dtype": str,
    "visible": bool,
    "package": str,
    "repo": str,
    "revision": str,
    "files": list,
    "other_files": list,
    "size": int,
    "parameters": int,
    "context": int,
    "shape": dict,
    "kinds": dict,
    "drafts": list,
    "all_round": bool,
    "gated": bool,
    "mode": str,
    "why": str,
}
REQUIRED = ("name", "description", "licence")
PACKAGE = Path(__file__).resolve().parent
_BACKEND = re.compile(r"^[^#\n]*\bbackend:", re.MULTILINE)  # a field of no other entries


def catalog_file() -> Path:
    """The product's models.yaml: inside the package in a wheel, next to it in a checkout."""
    inside = PACKAGE / "models.yaml"
    return inside if inside.exists() else PACKAGE.parent / "models.yaml"


def catalog_rows(file: Path) -> list[dict[str, Any]]:
    """Every model of ``file`` that runs here, with fields of the right kinds; raises SettingsError."""
    rows = _rows(file, _text(file))
    for number, row in enumerate(rows, start=1):
        if not _is_engine(row):
            _check_row(f"{file.name}, entry {number}", row)
    return [row for row in rows if not _is_engine(row)]


def engine_rows(file: Path) -> dict[str, dict[str, Any]]:
    """The entries of ``file`` that other engines run, by name, with the fields of config.toml.

    Raises SettingsError.
    """
    text = _text(file)
    if not _BACKEND.search(text):
        return {}  # every command reads this, and YAML takes a while
    rows = [dict(row) for row in _rows(file, text) if _is_engine(row)]
    for row in rows:
        if "model" in row:
            row["models"] = [row.pop("model")]
    return {str(row.pop("name", "")): row for row in rows}


def _is_engine(row: object) -> bool:
    return isinstance(row, dict) and "backend" in row


def row_shape(row: dict[str, Any]) -> ModelShape:
    """The shape that an entry states; raises TypeError where it has other fields."""
    kinds = LayerKinds(**row["kinds"]) if "kinds" in row else None
    return ModelShape(**row["shape"], context=row["context"], kinds=kinds)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the catalogue {file} cannot be read: {error}") from error


def _rows(file: Path, text: str) -> list[Any]:
    import yaml  # here, because most commands never read the catalogue

    # libyaml takes a hundredth of a second, Python a tenth, and every list of models waits for it
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        content = yaml.load(text, loader)  # noqa: S506 - both are safe
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
    if not {"folder", "repo", "package"} & set(row):
        raise SettingsError(f"{place}: missing folder, repo or package")
    for field, value in row.items():
        if field not in FIELDS:
            raise SettingsError(f"{place}: unknown field {field!r}; known: {', '.join(FIELDS)}")
        # type(), since True is an int for isinstance
        if type(value) is not FIELDS[field]:
            raise SettingsError(
                f"{place}: {field} must be a {FIELDS[field].__name__}, not {value!r}"
            )
    _check_lists(place, row)
    _check_shape(place, row)


def _check_lists(place: str, row: dict[str, Any]) -> None:
    for field in ("files", "other_files"):
        if not all(isinstance(name, str) for name in row.get(field, ())):
            raise SettingsError(f"{place}: {field} must be names, not {row[field]!r}")
    for draft in row.get("drafts", ()):
        if not (isinstance(draft, dict) and "kind" in draft and {*draft} <= {"kind", "repo"}):
            raise SettingsError(f"{place}: a draft has a kind and may have a repo, not {draft!r}")


def _check_shape(place: str, row: dict[str, Any]) -> None:
    if "shape" not in row:
        return
    if "context" not in row:
        raise SettingsError(f"{place}: a shape needs a context")
    try:
        row_shape(row)
    except TypeError as error:
        raise SettingsError(f"{place}: shape: {error}") from error
    for field, value in {**row["shape"], **row.get("kinds", {})}.items():
        if not isinstance(value, int) or value < 0:
            raise SettingsError(f"{place}: shape: {field} must be a count, not {value!r}")
