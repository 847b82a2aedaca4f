"""Laws of the history first, then its stories, then the faults it has to survive."""

import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import HistoryError, UnknownConversation
from app.history.migrations import migrations
from app.history.store import History
from engine.request import DepthCount, FinishReason, Stats

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


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def history(database: Path) -> Iterator[History]:
    opened = History.open(database)
    yield opened
    opened.close()


def start_writer(database: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(database), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def stats(drafter: str = "lookup", depths: tuple[DepthCount, ...] = ()) -> Stats:
    return Stats(
        drafter=drafter,
        why="the prompt repeats itself",
        prompt_tokens=40,
        cached_tokens=8,
        emitted=30,
        passes=10,
        drafted=50,
        accepted=20,
        depths=depths,
        prompt_seconds=0.25,
        decode_seconds=1.5,
    )


# --- laws ---------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # which earlier message is the parent
        st.sampled_from(["system", "user", "assistant"]),
        st.text(),
        st.sampled_from([None, *FinishReason]),
    ),
    max_size=12,
)


@settings(max_examples=20)  # every example makes a database on disk
@given(steps)
def test_a_tree_of_messages_comes_back_as_written(written):
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "history.db"
        history = History.open(database)
        chat = history.create_conversation("a chat").id
        made = []
        for place, role, text, reason in written:
            parents = [None, *made]
            parent = parents[int(place * len(parents))]
            made.append(history.add_message(chat, parent and parent.id, role, text, reason))
        history.close()

        again = History.open(database)
        path = again.messages(chat)
        by_id = {message.id: message for message in made}
        expected = [made[-1]] if made else []
        while expected and expected[0].parent is not None:
            expected.insert(0, by_id[expected[0].parent])
        assert path == expected
        for message in made:
            siblings = [other for other in made if other.parent == message.parent]
            assert again.versions(message.id) == siblings
        again.close()


@settings(max_examples=20)
@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_can_be_stored(text):
    with tempfile.TemporaryDirectory() as folder:
        history = History.open(Path(folder) / "history.db")
        made = history.create_conversation(text)
        assert history.conversations() == [made]
        assert made.title == text.encode("utf-8", "replace").decode()
        history.close()


@settings(max_examples=20)
@given(st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=6)))
def test_acceptance_is_the_sum_of_the_replies(replies):
    with tempfile.TemporaryDirectory() as folder:
        history = History.open(Path(folder) / "history.db")
        for depths in replies:
            history.record_reply("pocket", stats(depths=tuple(DepthCount(*d) for d in depths)))
        found = history.acceptance("pocket", "lookup")
        if not replies:
            assert found is None
            return
        assert (found.replies, found.emitted) == (len(replies), 30 * len(replies))
        longest = max(map(len, replies))
        assert found.depths == tuple(
            DepthCount(
                sum(depths[i][0] for depths in replies if len(depths) > i),
                sum(depths[i][1] for depths in replies if len(depths) > i),
            )
            for i in range(longest)
        )
        history.close()


# --- stories ------------------------------------------------------------------------------------


def test_regenerate_makes_a_version_and_the_newest_is_shown(history):
    chat = history.create_conversation("sums").id
    asked = history.add_message(chat, None, "user", "2 + 2?")
    first = history.add_message(chat, asked.id, "assistant", "5", FinishReason.STOP)
    second = history.add_message(chat, asked.id, "assistant", "4", FinishReason.STOP)
    assert history.messages(chat) == [asked, second]
    assert history.versions(first.id) == history.versions(second.id) == [first, second]


def test_a_cancelled_answer_keeps_its_part_and_its_reason(history):
    chat = history.create_conversation("stopped").id
    asked = history.add_message(chat, None, "user", "count")
    history.add_message(chat, asked.id, "assistant", "one, tw", FinishReason.CANCELLED)
    (_, answer) = history.messages(chat)
    assert (answer.content, answer.finish_reason) == ("one, tw", FinishReason.CANCELLED)


def test_a_new_message_brings_its_conversation_to_the_top(history):
    old = history.create_conversation("old")
    new = history.create_conversation("new")
    assert history.conversations() == [new, old]
    history.add_message(old.id, None, "user", "still there?")
    assert history.conversations() == [old, new]
    assert history.conversations(limit=1) == [old]


def test_rename_and_delete(history):
    kept = history.create_conversation("kept")
    gone = history.create_conversation("gone")
    history.rename(kept.id, "renamed")
    history.delete(gone.id)
    assert [(c.id, c.title) for c in history.conversations()] == [(kept.id, "renamed")]
    assert history.messages(gone.id) == []


def test_a_conversation_of_thousands_of_messages_opens_and_is_deleted_in_one_go(history):
    chat = history.create_conversation("long").id
    parent = None
    with history._file.writing() as database:
        for number in range(3000):
            key = f"m{number}"
            database.execute(
                "INSERT INTO messages(id, conversation, parent, role, content)"
                " VALUES (?, ?, ?, 'user', 'x')",
                (key, chat, parent),
            )
            parent = key
    assert len(history.messages(chat)) == 3000
    history.delete(chat)
    assert history.messages(chat) == []


def test_figures_stay_when_the_conversation_is_deleted(history):
    chat = history.create_conversation("measured").id
    answer = history.add_message(chat, None, "assistant", "yes")
    history.record_reply("pocket", stats(), session="s", message=answer.id)
    history.delete(chat)
    assert history.acceptance("pocket", "lookup").replies == 1


def test_acceptance_keeps_models_and_drafters_apart(history):
    history.record_reply("pocket", stats("lookup"))
    history.record_reply("pocket", stats("chain"))
    history.record_reply("other", stats("lookup"))
    assert history.acceptance("pocket", "lookup").replies == 1
    assert history.acceptance("pocket", "specexec") is None


def test_unknown_ids_are_named(history):
    with pytest.raises(UnknownConversation, match="nowhere"):
        history.add_message("nowhere", None, "user", "hello")
    with pytest.raises(UnknownConversation, match="nowhere"):
        history.rename("nowhere", "title")
    with pytest.raises(UnknownConversation, match="nowhere"):
        history.delete("nowhere")
    with pytest.raises(UnknownConversation, match="no-such"):
        history.record_reply("pocket", stats(), message="no-such")


def test_a_parent_of_another_conversation_is_refused(history):
    one = history.create_conversation("one").id
    two = history.create_conversation("two").id
    message = history.add_message(one, None, "user", "here")
    with pytest.raises(UnknownConversation, match=message.id):
        history.add_message(two, message.id, "assistant", "there")
    assert history.messages(two) == []


def test_a_role_that_nobody_has_is_a_fault_of_ours(history):
    chat = history.create_conversation("roles").id
    with pytest.raises(sqlite3.IntegrityError):
        history.add_message(chat, None, "robot", "beep")


# --- faults -------------------------------------------------------------------------------------


def test_kill_loses_nothing_that_was_acknowledged(database):
    acknowledged = []
    for number in range(5):
        writer = start_writer(database, f"round {number}", 100_000)
        acknowledged += [writer.stdout.readline().strip() for _ in range(20 + 7 * number)]
        writer.kill()
        acknowledged += writer.stdout.read().split("\n")[:-1]  # complete lines only
        writer.wait()
        writer.stdout.close()
    history = History.open(database)
    assert history.notice is None
    stored = {row[0] for row in history._file.read("SELECT id FROM messages")}
    assert stored.issuperset(acknowledged)
    assert history._file.read("PRAGMA integrity_check") == [("ok",)]
    history.close()


def test_processes_write_at_the_same_time_and_none_loses_a_message(database):
    writers = [start_writer(database, name, 150) for name in ("page", "ask")]
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
    with sqlite3.connect(database) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations(migration_set, name, applied_at)"
            " VALUES ('slipstream', 'm999_future', 'tomorrow')"
        )
    connection.close()


def another_program(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE recipes(name)")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (not_a_database, "damaged"),
        (overwritten_pages, "damaged"),
        (cut_short, "damaged"),
        (newer_schema, "newer version of Slipstream wrote it (m999_future)"),
        (another_program, "another program"),
    ],
)
def test_an_unusable_file_is_kept_aside_and_said(database, spoil, reason):
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


def test_an_older_schema_is_backed_up_and_brought_up_to_date(database):
    from sqlite_utils import Database

    connection = sqlite3.connect(database)
    migrations().apply(Database(connection), stop_before="m002_replies")
    connection.execute("INSERT INTO conversations VALUES ('old', 'kept', 'then', 1)")
    connection.commit()
    connection.close()

    history = History.open(database)
    assert [c.id for c in history.conversations()] == ["old"]
    history.record_reply("pocket", stats())
    history.close()
    backup = sqlite3.connect(f"{database}.before-m002_replies")
    assert backup.execute("SELECT id FROM conversations").fetchall() == [("old",)]
    assert not backup.execute("SELECT 1 FROM sqlite_master WHERE name = 'replies'").fetchall()
    backup.close()


def test_a_lost_write_ahead_log_loses_only_what_was_in_it(database, history):
    chat = history.create_conversation("safe").id
    history._file.read("PRAGMA wal_checkpoint(TRUNCATE)")
    history.add_message(chat, None, "user", "in the log only")
    copy = database.with_name("copy.db")
    copy.write_bytes(database.read_bytes())
    again = History.open(copy)
    assert again.notice is None
    assert [c.id for c in again.conversations()] == [chat]
    again.close()


def test_order_does_not_follow_the_clock(history, monkeypatch):
    monkeypatch.setattr("app.history.store._now", lambda: "1970-01-01T00:00:00+00:00")
    past = history.create_conversation("first")
    monkeypatch.setattr("app.history.store._now", lambda: "1960-01-01T00:00:00+00:00")
    later = history.create_conversation("second")
    assert history.conversations() == [later, past]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match="could not be opened"):
        History.open(tmp_path / "file" / "history.db")


def test_a_full_disk_is_said_and_the_history_stays_usable(history):
    chat = history.create_conversation("small disk").id
    (pages,) = history._file.read("PRAGMA page_count")[0]
    history._file.read(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(HistoryError, match="full"):
        history.add_message(chat, None, "user", "x" * 100_000)
    history.add_message(chat, None, "user", "short")
    assert [m.content for m in history.messages(chat)] == ["short"]


def test_a_writer_that_never_ends_is_named(database, history, monkeypatch):
    monkeypatch.setattr("app.history.file.PATIENCE_SECONDS", 0.05)
    other = History.open(database)
    with history._file.writing(), pytest.raises(HistoryError, match="another Slipstream"):
        other.create_conversation("waits")
    other.close()
