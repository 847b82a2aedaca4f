"""One SQLite file on disk: opened, checked, migrated, and written by one process at a time."""

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from app.errors import HistoryError, UnknownConversation
from app.history.migrations import STEPS, UnknownSchemaError, applied_steps, apply_steps
from app.history.search import teach

PATIENCE_SECONDS = 20.0  # how long a writer waits for another process
POLL_SECONDS = 0.01
IN_MEMORY = Path(":memory:")  # as SQLite calls it
SIDE_FILES = ("", "-wal", "-shm")
DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


class UnusableFileError(Exception):
    """The file is there but is no history that this version can use; the message says why."""


class HistoryFile:
    """The one connection of this process; every write holds a lock that all processes share.

    SQLite before 3.51.3 can damage a WAL file when two connections write and checkpoint at the
    same moment. The lock file prevents that, and the system releases it when a process dies.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, notice: str | None) -> None:
        self.path = path
        self.notice = notice  # what a person should know about how the file was opened
        self._connection = connection
        self._thread_lock = threading.RLock()
        self._process_lock = nullcontext() if path == IN_MEMORY else _process_lock(path)

    @classmethod
    def open(cls, path: Path) -> "HistoryFile":
        """Open or create ``path``; a file that cannot be used is renamed, never overwritten."""
        with failures_reported(path, "opened"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _process_lock(path):
                return cls(path, *_connect_or_replace(path))

    @classmethod
    def in_memory(cls, notice: str) -> "HistoryFile":
        """An empty one of this process alone, which is forgotten at its end."""
        return cls(IN_MEMORY, _connect(IN_MEMORY), notice)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: committed and on disk at the end, or not at all."""
        with (
            failures_reported(self.path, "written"),
            self._thread_lock,
            self._process_lock,
            _transaction(self._connection),
        ):
            yield self._connection

    def read(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """All rows of one query; ``parameters`` fill its question marks, one mapping fills its names."""
        named = parameters[0] if parameters and isinstance(parameters[0], Mapping) else None
        with failures_reported(self.path, "read"), self._thread_lock:
            return self._connection.execute(sql, named or parameters).fetchall()

    def close(self) -> None:
        """Fold the write-ahead log into the file and let go of it."""
        with failures_reported(self.path, "closed"), self._thread_lock, self._process_lock:
            self._connection.close()


@contextmanager
def references_checked(what: str) -> Iterator[None]:
    """Turn a reference to a row that is not there into UnknownConversation, which names ``what``."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorname != "SQLITE_CONSTRAINT_FOREIGNKEY":
            raise
        raise UnknownConversation(f"history holds no {what}") from error


def _process_lock(path: Path) -> FileLock:
    return FileLock(
        f"{path}.lock", timeout=PATIENCE_SECONDS, poll_interval=POLL_SECONDS, thread_local=False
    )


@contextmanager
def failures_reported(path: Path, deed: str) -> Iterator[None]:
    """Raise failures of disk and database as HistoryError; ``deed`` is a participle."""
    try:
        yield
    except Timeout as error:
        raise HistoryError(
            f"the history {path} could not be {deed}: another Slipstream has been writing to it "
            f"for {PATIENCE_SECONDS:.0f} seconds; close it, or choose another SLIPSTREAM_HOME"
        ) from error
    except sqlite3.IntegrityError:
        raise  # the caller's values, not the file
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(
            f"the history {path} could not be {deed} ({error}); check free space and permissions"
        ) from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    # IMMEDIATE, since a plain BEGIN that reads first can fail when it turns into a write.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _connect_or_replace(path: Path) -> tuple[sqlite3.Connection, str | None]:
    try:
        return _connect(path), None
    except UnusableFileError as problem:
        kept = _move_aside(path)
        return _connect(path), (
            f"The history could not be used: {problem}. It was kept as {kept}, "
            "and a new, empty one was started."
        )


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _prepare(path, connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        # the low byte is the kind of failure, the rest its details
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE_CODES:
            raise UnusableFileError(f"it is damaged ({error})") from error
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {PATIENCE_SECONDS * 1000:.0f}")
    done = _check(connection)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a few commits a minute: durable is cheap
    connection.execute("PRAGMA foreign_keys = ON")
    teach(connection)
    _migrate(path, connection, done)


def _check(connection: sqlite3.Connection) -> int:
    """The number of migration steps that the file has; raises UnusableFileError."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise UnusableFileError(f"it is damaged ({found})")
    try:
        return applied_steps(connection)
    except UnknownSchemaError as error:
        raise UnusableFileError(str(error)) from error


def _migrate(path: Path, connection: sqlite3.Connection, done: int) -> None:
    if 0 < done < len(STEPS):
        _back_up(connection, path.with_name(f"{path.name}.before-{list(STEPS)[done]}"))
    with _transaction(connection):  # all steps or none
        apply_steps(connection, done)


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()


def _move_aside(path: Path) -> Path:
    now = datetime.now(UTC)
    kept = path.with_name(f"{path.stem}-unusable-{now:%Y-%m-%d-%H%M%S-%f}{path.suffix}")
    for side in SIDE_FILES:
        source = path.with_name(path.name + side)
        if source.exists():
            source.rename(kept.with_name(kept.name + side))
    return kept
