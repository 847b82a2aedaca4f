"""The database as a file: its size, copies of it, and its integrity."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.errors import HistoryError
from app.history.file import SIDE_FILES, HistoryFile, failures_reported

FOLDER = "backups"
_FAULTS = 20  # reported at most


@dataclass(frozen=True, slots=True)
class Size:
    """What the database holds, and the bytes that it takes."""

    bytes: int
    conversations: int
    messages: int
    replies: int


class Upkeep:
    """Looks after one database while answers are stored; may be called from any thread."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    @property
    def path(self) -> Path:
        """Of the database."""
        return self._file.path

    @property
    def folder(self) -> Path:
        """Where copies go."""
        return self.path.parent / FOLDER

    def size(self) -> Size:
        """Counted now."""
        path = self.path
        files = (path.with_name(path.name + side) for side in SIDE_FILES)
        sizes = (file.stat().st_size for file in files if file.exists())
        tables = ("conversations", "messages", "replies")
        counts = (self._file.read(f"SELECT count(*) FROM {name}")[0][0] for name in tables)  # noqa: S608
        return Size(sum(sizes), *counts)

    def back_up(self) -> Path:
        """Copy the database as it is at this moment; raises HistoryError, and leaves no half copy.

        The file that is returned needs no other: put in the place of the database, it is used.
        """
        now = datetime.now(UTC)
        target = self.folder / f"{self.path.stem}-{now:%Y-%m-%d-%H%M%S-%f}{self.path.suffix}"
        draft = target.with_name(f"{target.name}.part")
        with failures_reported(self.path, "copied"):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            try:
                self._copy(draft)
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
        return target

    def _copy(self, target: Path) -> None:
        from sqlite_utils import Database  # here: it imports pandas, which takes half a second

        target.touch(mode=0o600)  # conversations are private
        with closing(_reader(self.path)) as source, closing(_writer(target)) as copy:
            source.backup(copy)
            Database(copy).disable_wal()
            faults = _faults(copy)
        if faults:
            raise HistoryError(f"the copy would be damaged ({faults[0]}); check the history")

    def backup(self, name: str) -> Path | None:
        """The copy of that name, if it is one."""
        made = {
            path.name: path for path in self.folder.glob(f"{self.path.stem}-*{self.path.suffix}")
        }
        return made.get(name)

    def faults(self) -> tuple[str, ...]:
        """Every fault of the database, which is read whole; empty if there is none."""
        with failures_reported(self.path, "checked"), closing(_reader(self.path)) as connection:
            return _faults(connection)


def _reader(path: Path) -> sqlite3.Connection:
    """A second connection that only reads, so it blocks no writer."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=20)


def _writer(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _faults(connection: sqlite3.Connection) -> tuple[str, ...]:
    try:
        pages = connection.execute(f"PRAGMA integrity_check({_FAULTS})").fetchall()
        orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.DatabaseError as error:
        return (str(error),)
    found = [str(page[0]) for page in pages if page[0] != "ok"]
    found += [
        f"{row[0]} refers to a row of {row[2]} that is not there" for row in orphans[:_FAULTS]
    ]
    return tuple(found)
