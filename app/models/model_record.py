"""What the folder of a downloaded or imported model says about itself, as one JSON file in it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from app.files import replace_file

RECORD = "slipstream.json"


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """``name`` is what a person types; ``reference`` is a folder or GGUF file that stays elsewhere."""

    name: str
    source: str  # repository and commit, or the path that was imported
    licence: str = "unknown"
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
    except (OSError, ValueError, TypeError):
        return None  # a folder that a person made, or that is being made
    texts = (record.name, record.source, record.licence)
    others = (record.draft, record.reference)
    good = all(isinstance(text, str) for text in texts)
    return record if good and all(isinstance(text, str | None) for text in others) else None


def recorded_models(models_folder: Path) -> Iterator[tuple[Path, ModelRecord]]:
    """Every folder of ``models_folder`` with a record, by name."""
    if models_folder.is_dir():
        for folder in sorted(models_folder.iterdir()):
            record = None if folder.name.startswith(".") else read_record(folder)
            if record is not None and record.name == folder.name:
                yield folder, record
