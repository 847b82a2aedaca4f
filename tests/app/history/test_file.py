"""The file under stress: killed writers, several processes, damage, older and newer versions."""

import gzip
import random
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from app.errors import HistoryError
from app.history.migrations import STEPS
from app.history.store import History
from tests.app.history.replies import CHAT, run, stats

OLD_FILE = Path(__file__).parents[2] / "data" / "history-of-0.1.0.db.gz"

WRITER = """
import sys
from pathlib import Path
from app.history.store import History

history = History.open(Path(sys.argv[1]))
chat = history.create_conversation(sys.argv[2]).id
parent = None
for number in range(int(sys.argv[3])):
    parent = history.add_message(chat, parent, "user", f"{sys.argv[2]} {number}").id
    print(parent, flush=True)
"""


REWRITER = """
import sys
from pathlib import Path
from app.history.store import History

history = History.open(Path(sys.argv[1]))
chat = history.create_conversation("killed").id
answer, number = None, 0
while True:
    number += 1
    answer = history.add_message(chat, answer and answer.id, "assistant", "begun")
    for part in range(3):
        history.rewrite(answer.id, f"{number}.{part}")
        print(chat, answer.id, f"{number}.{part}", flush=True)
"""
KILLED_AT_ONCE = 5  # databases, each killed several times: starting Python is what takes time


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_lose_no_message_that_was_reported_as_stored(kills, tmp_path):
    rng = random.Random(11)
    acknowledged = 0
    for _ in range(kills // KILLED_AT_ONCE):
        running = []
        for number in range(KILLED_AT_ONCE):
            command = [sys.executable, "-c", REWRITER, str(tmp_path / f"{number}.db")]
            writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            running.append(writer)
        for writer in running:
            assert writer.stdout is not None
            assert writer.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        for number, writer in enumerate(running):
            writer.kill()
            # what the kill cut off in the middle of a line was not acknowledged
            lines = writer.communicate()[0].splitlines(keepends=True)
            acknowledged += _check_kept(tmp_path / f"{number}.db", lines)
    assert acknowledged > kills


def _check_kept(database: Path, lines: list[str]) -> int:
    whole = [line.split() for line in lines if line.endswith("\n")]
    history = History.open(database)
    try:
        assert history.notice is None
        assert history.upkeep.faults() == ()
        newest = {answer: text for _, answer, text in whole}
        chats = {chat for chat, _, _ in whole}
        kept = {one.id: one.content for chat in chats for one in history.tree(chat)}
        for answer, text in newest.items():
            number, part = text.split(".")
            later = {f"{number}.{more}" for more in range(int(part), 3)}
            assert kept[answer] in later
        return len(whole)
    finally:
        history.close()


def test_processes_write_at_the_same_time_and_none_loses_a_message(database):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(database), name, "150"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("page", "ask")
    ]
    printed = [writer.communicate()[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    history = History.open(database)
    for chat in history.conversations():
        assert [m.id for m in history.messages(chat.id)] in printed
    assert sum(map(len, printed)) == 300
    history.close()


def test_threads_share_one_history(history):
    chats = [history.create_conversation(str(number)).id for number in range(4)]

    def write(chat: str) -> None:
        parent = None
        for number in range(25):
            parent = history.add_message(chat, parent, "user", str(number)).id

    threads = [threading.Thread(target=write, args=(chat,)) for chat in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for chat in chats:
        assert [m.content for m in history.messages(chat)] == [str(n) for n in range(25)]


def filled(database: Path) -> None:
    history = History.open(database)
    chat = history.create_conversation("before").id
    for number in range(300):
        history.add_message(chat, None, "user", f"{number} " * 50)
    history.close()


def not_a_database(database: Path) -> None:
    database.write_text("these are not the bytes that you are looking for\n" * 100)


def overwritten_pages(database: Path) -> None:
    filled(database)
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 3 * 4096)


def cut_short(database: Path) -> None:
    filled(database)
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size // 2)


def newer_schema(database: Path) -> None:
    filled(database)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 999")


def newer_step_of_sqlite_utils(database: Path) -> None:
    old_file(database)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations(migration_set, name, applied_at)"
            " VALUES ('slipstream', 'm999_future', 'tomorrow')"
        )


def another_program(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE recipes(name)")
        connection.execute("PRAGMA user_version = 3")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (not_a_database, "damaged"),
        (overwritten_pages, "damaged"),
        (cut_short, "damaged"),
        (newer_schema, "newer version of Slipstream wrote it (version 999)"),
        (newer_step_of_sqlite_utils, "newer version of Slipstream wrote it (m999_future)"),
        (another_program, "another program"),
    ],
)
def test_an_unusable_file_is_kept_aside_and_reported(database, spoil, reason):
    spoil(database)
    before = database.read_bytes()
    history = History.open(database)
    (kept,) = database.parent.glob("history-unusable-*.db")
    assert reason in history.notice
    assert str(kept) in history.notice
    assert kept.read_bytes() == before
    history.create_conversation("life goes on")
    history.close()
    again = History.open(database)
    assert again.notice is None
    assert [c.title for c in again.conversations()] == ["life goes on"]
    again.close()


def test_an_empty_file_is_a_new_history(database):
    database.touch()
    history = History.open(database)
    assert history.notice is None
    assert history.conversations() == []
    history.close()
    assert not list(database.parent.glob("*.before-*"))


def old_file(database: Path) -> None:
    """The file that the last version with sqlite-utils' migrations wrote, with one conversation."""
    database.write_bytes(gzip.decompress(OLD_FILE.read_bytes()))


def test_a_file_of_sqlite_utils_migrations_opens_and_no_step_runs_twice(database):
    old_file(database)
    before = Schema.of(database)
    for _ in range(2):
        history = History.open(database)
        assert history.notice is None
        (chat,) = history.conversations(words="zebra")
        assert (chat.title, chat.pinned, chat.system) == (
            "A chat of the old version",
            True,
            "Answer briefly.",
        )
        assert [m.content for m in history.messages(chat.id)] == [
            "What is a zebra?",
            "A horse, almost.",
        ]
        ((_, answers),) = history.siblings(chat.id).items()
        assert history.facts(chat.id)[answers[0]].spans == ((0, 2),)
        assert [one.name for one in history.presets.all()] == ["brief"]
        assert [row.origin.drafter for row in history.measurements.remembered()] == ["chain"]
        history.close()
    after = Schema.of(database)
    assert after == Schema(before.tables | {"row_prices"}, len(STEPS))
    assert [copy.name for copy in database.parent.glob("*.before-*")] == [
        f"{database.name}.before-m006_prices"
    ]
    new = database.with_name("new.db")
    History.open(new).close()
    assert Schema.of(new) == replace(after, tables=after.tables - {"_sqlite_migrations"})


@dataclass(frozen=True)
class Schema:
    """What a file is made of, apart from its rows."""

    tables: frozenset[str]
    version: int

    @classmethod
    def of(cls, database: Path) -> "Schema":
        with closing(sqlite3.connect(database)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE sql NOT NULL")
            found = frozenset(name for (name,) in names if "_migrations_" not in name)
            return cls(found, connection.execute("PRAGMA user_version").fetchone()[0])


def migrated_until(step: str, database: Path, fill: str) -> None:
    """A file that sqlite-utils' migrations made before ``step`` was written, with one row."""
    migrations = Migrations("slipstream")
    for name, statements in STEPS.items():
        migrations(name=name)(lambda db, run=statements: [db.execute(one) for one in run])
    with closing(sqlite3.connect(database)) as connection:
        migrations.apply(Database(connection), stop_before=step)
        connection.execute(fill)
        connection.commit()


def test_an_older_schema_is_backed_up_and_brought_up_to_date(database):
    row = "INSERT INTO conversations VALUES ('old', 'kept', 'then', 1)"
    migrated_until("m002_replies", database, row)
    history = History.open(database)
    assert [c.id for c in history.conversations()] == ["old"]
    history.measurements.record(CHAT, stats())
    history.close()
    backup = sqlite3.connect(f"{database}.before-m002_replies")
    assert backup.execute("SELECT id FROM conversations").fetchall() == [("old",)]
    assert not backup.execute("SELECT 1 FROM sqlite_master WHERE name = 'replies'").fetchall()
    backup.close()


def test_replies_of_before_the_runs_still_count_and_guide_nothing(database):
    row = (
        "INSERT INTO replies VALUES "
        "(1, NULL, 's', 'pocket', 'lookup', 'why', 40, 8, 30, 10, 50, 20, 0.25, 1.5, 'then')"
    )
    migrated_until("m003_runs", database, row)
    history = History.open(database)
    assert history.measurements.priors(CHAT) == ()
    history.measurements.record(CHAT, stats("lookup", runs=(run("lookup"),)))
    assert history.upkeep.size().replies == 2
    assert [prior.drafter for prior in history.measurements.priors(CHAT)] == ["lookup"]
    history.close()


def test_a_lost_write_ahead_log_loses_only_what_was_in_it(database, history, file):
    chat = history.create_conversation("safe").id
    file.read("PRAGMA wal_checkpoint(TRUNCATE)")
    history.add_message(chat, None, "user", "in the log only")
    copy = database.with_name("copy.db")
    copy.write_bytes(database.read_bytes())
    again = History.open(copy)
    assert again.notice is None
    assert [c.id for c in again.conversations()] == [chat]
    again.close()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match="could not be opened"):
        History.open(tmp_path / "file" / "history.db")


def test_a_full_disk_is_reported_and_the_history_stays_usable(history, file):
    chat = history.create_conversation("small disk").id
    (pages,) = file.read("PRAGMA page_count")[0]
    file.read(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(HistoryError, match="full"):
        history.add_message(chat, None, "user", "x" * 100_000)
    history.add_message(chat, None, "user", "short")
    assert [m.content for m in history.messages(chat)] == ["short"]


def test_a_writer_that_never_ends_is_named(database, history, monkeypatch, file):
    monkeypatch.setattr("app.history.file.PATIENCE_SECONDS", 0.05)
    other = History.open(database)
    with file.writing(), pytest.raises(HistoryError, match="another Slipstream"):
        other.create_conversation("waits")
    other.close()
