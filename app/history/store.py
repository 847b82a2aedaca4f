"""Conversations as trees of messages; beside them, what every reply measured."""

import sqlite3
import uuid
from dataclasses import asdict
from pathlib import Path

from app.errors import UnknownConversation
from app.history.file import HistoryFile, references_checked
from app.history.measurements import Measurements
from app.history.records import Conversation, StoredMessage, utc_now
from engine.request import FinishReason

# A child is always written after its parent, so the newest message is a leaf.
NEWEST_PATH = """
WITH RECURSIVE path AS (
    SELECT * FROM messages WHERE seq = (SELECT max(seq) FROM messages WHERE conversation = ?)
    UNION ALL
    SELECT messages.* FROM messages JOIN path ON messages.id = path.parent
)
SELECT id, conversation, parent, role, content, finish_reason FROM path ORDER BY seq
"""

VERSIONS = """
SELECT id, conversation, parent, role, content, finish_reason FROM messages
WHERE (conversation, parent) IS (SELECT conversation, parent FROM messages WHERE id = ?)
ORDER BY seq
"""

TOUCH = """
UPDATE conversations SET touched = (SELECT max(touched) + 1 FROM conversations) WHERE id = ?
"""

INSERT_MESSAGE = """
INSERT INTO messages(id, conversation, parent, role, content, finish_reason)
VALUES (:id, :conversation, :parent, :role, :content, :finish_reason)
"""


class History:
    """Everything that outlives the process; may be called from any thread."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file
        self.measurements = Measurements(file)

    @classmethod
    def open(cls, path: Path) -> "History":
        """Open the database at ``path``, created when missing; look at ``notice`` afterwards."""
        return cls(HistoryFile.open(path))

    @property
    def notice(self) -> str | None:
        """One sentence to show when an unusable file was moved aside, else None."""
        return self._file.notice

    def close(self) -> None:
        """Let go of the database."""
        self._file.close()

    def create_conversation(self, title: str) -> Conversation:
        """Start an empty conversation."""
        made = Conversation(_new_id(), _storable(title), utc_now())
        with self._file.writing() as database:
            database.execute(
                "INSERT INTO conversations(id, title, created, touched)"
                " SELECT ?, ?, ?, coalesce(max(touched), 0) + 1 FROM conversations",
                (made.id, made.title, made.created),
            )
        return made

    def conversations(self, limit: int = 100) -> list[Conversation]:
        """The newest conversations; a new message makes its conversation the newest."""
        sql = "SELECT id, title, created FROM conversations ORDER BY touched DESC LIMIT ?"
        return [Conversation(*row) for row in self._file.read(sql, limit)]

    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title."""
        with self._file.writing() as database:
            changed = database.execute(
                "UPDATE conversations SET title = ? WHERE id = ?", (_storable(title), conversation)
            )
            _expect_one(changed, conversation)

    def delete(self, conversation: str) -> None:
        """Delete a conversation and all its messages; the figures of its replies stay."""
        with self._file.writing() as database:
            gone = database.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
            _expect_one(gone, conversation)

    def add_message(
        self,
        conversation: str,
        parent: str | None,
        role: str,
        content: str,
        finish_reason: FinishReason | None = None,
    ) -> StoredMessage:
        """Store a message below ``parent`` (None for a first one); it is on disk on return."""
        made = StoredMessage(
            _new_id(), conversation, parent, role, _storable(content), finish_reason
        )
        what = f"conversation {conversation!r} or no message {parent!r} in it"
        with references_checked(what), self._file.writing() as database:
            database.execute(INSERT_MESSAGE, asdict(made))
            database.execute(TOUCH, (conversation,))
        return made

    def messages(self, conversation: str) -> list[StoredMessage]:
        """The path from the first message to the newest one."""
        return [_message(*row) for row in self._file.read(NEWEST_PATH, conversation)]

    def versions(self, message: str) -> list[StoredMessage]:
        """Every message with the same parent, that one among them, oldest first."""
        return [_message(*row) for row in self._file.read(VERSIONS, message)]


def _message(
    key: str, conversation: str, parent: str | None, role: str, content: str, reason: str | None
) -> StoredMessage:
    finish_reason = None if reason is None else FinishReason(reason)
    return StoredMessage(key, conversation, parent, role, content, finish_reason)


def _expect_one(cursor: sqlite3.Cursor, conversation: str) -> None:
    if cursor.rowcount != 1:
        raise UnknownConversation(f"history holds no conversation {conversation!r}")


def _storable(text: str) -> str:
    """The same text; half characters, which UTF-8 cannot hold, become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _new_id() -> str:
    return uuid.uuid4().hex
