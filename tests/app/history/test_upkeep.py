"""The database as a file: a copy that works, damage that is found, failures in one sentence."""

import shutil
import sqlite3
import stat
from contextlib import closing

import pytest

from app.errors import HistoryError
from app.history.store import History
from tests.app.history.replies import CHAT, run, stats

PAGE = 4096


def filled(history: History) -> str:
    """A conversation of some pages, and figures of an answer."""
    conversation = history.create_conversation("Boats").id
    for number in range(40):
        history.add_message(conversation, None, "user", f"{number} " + "a red boat " * 200)
    history.measurements.record(CHAT, stats(runs=(run(),)))
    return conversation


def test_size_counts_what_is_there(history, database):
    empty = history.upkeep.size()
    filled(history)
    size = history.upkeep.size()
    assert (empty.conversations, empty.messages, empty.replies) == (0, 0, 0)
    assert (size.conversations, size.messages, size.replies) == (1, 40, 1)
    assert size.bytes > empty.bytes
    assert size.bytes >= database.stat().st_size


def test_a_copy_is_private_whole_and_takes_the_databases_place(history, tmp_path):
    conversation = filled(history)
    assert history.upkeep.faults() == ()
    made = history.upkeep.back_up()
    history.create_conversation("Written after the copy")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert list(made.parent.iterdir()) == [made]
    home = tmp_path / "elsewhere"
    home.mkdir()
    shutil.copy(made, home / "history.db")
    restored = History.open(home / "history.db")
    assert restored.notice is None
    assert [one.id for one in restored.conversations()] == [conversation]
    assert restored.measurements.remembered() == history.measurements.remembered()
    restored.close()


def test_only_copies_can_be_asked_for_by_name(history, database):
    made = history.upkeep.back_up()
    assert history.upkeep.backup(made.name) == made != history.upkeep.back_up()
    for name in ("", "history.db", "../history.db", str(database), f"{made.name}.part"):
        assert history.upkeep.backup(name) is None


def test_a_copy_that_cannot_be_written_leaves_nothing(history):
    history.upkeep.folder.write_text("a file where the folder belongs")
    with pytest.raises(HistoryError, match="could not be copied"):
        history.upkeep.back_up()
    assert history.upkeep.folder.read_text() == "a file where the folder belongs"


def test_damaged_pages_are_found_and_never_copied(history, database):
    filled(history)
    with closing(sqlite3.connect(database)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with database.open("r+b") as file:  # the disk does so while the program runs
        file.seek(database.stat().st_size // 2 // PAGE * PAGE)
        file.write(b"\xff" * 4 * PAGE)
    assert history.upkeep.faults()
    with pytest.raises(HistoryError, match="damaged|malformed"):
        history.upkeep.back_up()
    assert not list(history.upkeep.folder.glob("*"))


def test_a_row_without_its_conversation_is_a_fault(history, database):
    conversation = filled(history)
    with closing(
        sqlite3.connect(database, isolation_level=None)
    ) as other:  # a program that does not care
        other.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
    faults = history.upkeep.faults()
    assert any("conversations" in fault for fault in faults)
