"""Saved benchmarks: one JSON file each in the user's home, newest first."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from app.bench.compare.record import BenchmarkRecord
from app.errors import OutputFileError
from app.files import replace_file

log = logging.getLogger(__name__)

FOLDER = "benchmarks"


@dataclass(frozen=True, slots=True)
class SavedBenchmark:
    """A saved benchmark; ``name`` is its file's, without the ending."""

    name: str
    record: BenchmarkRecord


@dataclass(frozen=True, slots=True)
class SavedBenchmarks:
    """The folder ``benchmarks`` of ``home``, made when it is needed."""

    home: Path

    def keep(self, record: BenchmarkRecord) -> SavedBenchmark:
        """Write it; raises OutputFileError."""
        name = _name(record)
        file = self._folder / f"{name}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(file, as_json(record))
        except OSError as error:
            raise OutputFileError(
                f"the benchmark cannot be kept in {file} ({error.strerror}); make room there"
            ) from error
        return SavedBenchmark(name, record)

    def all(self) -> list[SavedBenchmark]:
        """Every file that can be read, newest first; others are named in the log."""
        files = sorted(self._folder.glob("*.json"), reverse=True)
        kept = []
        for file in files:
            try:
                record = BenchmarkRecord.model_validate_json(file.read_bytes())
            except (OSError, ValidationError):
                log.warning("%s is no benchmark that this version can read", file, exc_info=True)
                continue
            kept.append(SavedBenchmark(file.stem, record))
        return kept

    def find(self, name: str) -> SavedBenchmark:
        """The benchmark of that name; raises OutputFileError."""
        found = next((one for one in self.all() if one.name == name), None)
        if found is None:
            raise OutputFileError(f"there is no benchmark {name!r} any more; reload the page")
        return found

    def remove(self, name: str) -> None:
        """Delete its file; raises OutputFileError."""
        kept = self.find(name)  # never a path from outside
        try:
            (self._folder / f"{kept.name}.json").unlink(missing_ok=True)
        except OSError as error:
            raise OutputFileError(f"{name} cannot be removed: {error.strerror}") from error

    @property
    def _folder(self) -> Path:
        return self.home / FOLDER


def as_json(record: BenchmarkRecord) -> str:
    """The object, for people too."""
    return record.model_dump_json(indent=1) + "\n"


def _name(record: BenchmarkRecord) -> str:
    """Date and model, as a file may be called."""
    stamp = re.sub(r"[^0-9]", "-", record.date[:19])
    return f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]+', '-', record.model)[-60:]}"
