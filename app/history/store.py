"""Conversations as trees of messages, with the facts under answers, presets and a search."""

import json
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from app.errors import HistoryError, UnknownConversation
from app.history import search
from app.history.figures import Figures
from app.history.file import HistoryFile, references_checked
from app.history.measurements import Measurements, StoredCalibrations
from app.history.records import AnswerFacts, Conversation, Preset, StoredMessage, utc_now
from app.history.upkeep import Upkeep
from engine.request import FinishReason

COLUMNS = "id, conversation, parent, role, content, finish_reason"
LISTED = "id, title, created, pinned, system"
OWNED = "(? IS NULL OR owner = ?)"

# A child is always written after its parent, so the newest message is a leaf.
PATH = f"""
WITH RECURSIVE path AS (
    SELECT * FROM messages WHERE seq = coalesce(
        (SELECT seq FROM messages WHERE conversation = :conversation AND id = coalesce(
            :leaf, (SELECT shown FROM conversations WHERE id = :conversation))),
        (SELECT max(seq) FROM messages WHERE conversation = :conversation))
    UNION ALL
    SELECT messages.* FROM messages JOIN path ON messages.id = path.parent
)
SELECT {COLUMNS} FROM path ORDER BY seq
"""  # noqa: S608 - the only thing put in is ours

SIBLINGS = """
SELECT coalesce(parent, ''), group_concat(id, ' ') FROM
(SELECT parent, id FROM messages WHERE conversation = ? ORDER BY seq)
GROUP BY parent HAVING count(*) > 1
"""

NEWEST_LEAF_BELOW = """
WITH RECURSIVE below AS (
    SELECT seq, id FROM messages WHERE conversation = :conversation AND id = :message
    UNION ALL
    SELECT messages.seq, messages.id FROM messages JOIN below ON messages.parent = below.id
    WHERE messages.conversation = :conversation
)
SELECT id FROM below ORDER BY seq DESC LIMIT 1
"""

TOUCH = """
UPDATE conversations SET touched = (SELECT max(touched) + 1 FROM conversations), shown = ?
WHERE id = ?
"""

INSERT_CONVERSATION = """
INSERT INTO conversations(id, title, created, touched, system, owner)
SELECT ?, ?, ?, coalesce(max(touched), 0) + 1, ?, ? FROM conversations
"""

INSERT_MESSAGE = """
INSERT INTO messages(id, conversation, parent, role, content, finish_reason)
VALUES (:id, :conversation, :parent, :role, :content, :finish_reason)
"""

REWRITE = f"""
UPDATE messages SET content = ?, finish_reason = ? WHERE id = ? AND EXISTS (
    SELECT 1 FROM conversations WHERE id = messages.conversation AND {OWNED})
"""  # noqa: S608 - the only thing put in is ours

FACTS = """
SELECT answers.message, answers.facts
FROM messages JOIN answers ON answers.message = messages.id WHERE messages.conversation = ?
"""

PUT_FACTS = """
INSERT INTO answers(message, facts) VALUES (?, ?)
ON CONFLICT(message) DO UPDATE SET facts = excluded.facts
"""

PUT_PRESET = """
INSERT INTO presets(owner, name, system, options) VALUES (?, ?, ?, ?)
ON CONFLICT(owner, name) DO UPDATE SET system = excluded.system, options = excluded.options
"""

KNOWN_FACTS = frozenset(field.name for field in fields(AnswerFacts))


class Presets:
    """System prompts and sampling that a person keeps under a name; thread-safe."""

    def __init__(self, file: HistoryFile, owner: str) -> None:
        self._file, self._owner = file, owner

    def all(self) -> list[Preset]:
        """By name."""
        sql = "SELECT name, system, options FROM presets WHERE owner = ? ORDER BY name"
        rows = self._file.read(sql, self._owner)
        return [Preset(name, system, json.loads(options)) for name, system, options in rows]

    def put(self, preset: Preset) -> None:
        """Keep a preset, in place of one with the same name."""
        row = (self._owner, preset.name, preset.system, json.dumps(dict(preset.options)))
        with self._file.writing() as database:
            database.execute(PUT_PRESET, row)

    def delete(self, name: str) -> None:
        """Forget a preset."""
        with self._file.writing() as database:
            sql = "DELETE FROM presets WHERE owner = ? AND name = ?"
            gone = database.execute(sql, (self._owner, name))
            if gone.rowcount != 1:
                raise UnknownConversation(f"history holds no preset {name!r}")


class History:
    """Everything that outlives the process; may be called from any thread.

    With an ``owner``, conversations and presets of others do not exist; without one all do.
    """

    def __init__(self, file: HistoryFile, owner: str | None = None) -> None:
        self._file, self.owner = file, owner
        self.measurements = Measurements(file)
        self.figures = Figures(file)
        self.upkeep = Upkeep(file)
        self.presets = Presets(file, owner or "")
        self.calibrations = StoredCalibrations(file)

    @classmethod
    def open(cls, path: Path) -> "History":
        """Open the database at ``path``, created when missing; look at ``notice`` afterwards."""
        return cls(HistoryFile.open(path))

    @classmethod
    def open_or_forget(cls, path: Path) -> "History":
        """``open``; where that fails, an empty history which is not kept, and whose notice says so."""
        try:
            return cls.open(path)
        except HistoryError as error:
            return cls(HistoryFile.in_memory(f"what is measured is not kept: {error}"))

    def of(self, owner: str | None) -> "History":
        """The same history as this owner sees it; None: all of it."""
        return self if owner == self.owner else History(self._file, owner)

    @property
    def notice(self) -> str | None:
        """One sentence to show when an unusable file was moved aside, else None."""
        return self._file.notice

    def close(self) -> None:
        """Let go of the database."""
        self._file.close()

    def create_conversation(self, title: str, system: str = "") -> Conversation:
        """Start an empty conversation."""
        made = Conversation(_new_id(), storable(title), utc_now(), system=storable(system))
        with self._file.writing() as database:
            database.execute(INSERT_CONVERSATION, self._begun(made))
        return made

    def conversation(self, conversation: str) -> Conversation:
        """One conversation; raises UnknownConversation."""
        sql = f"SELECT {LISTED} FROM conversations WHERE id = ? AND {OWNED}"  # noqa: S608
        rows = self._file.read(sql, conversation, *self._twice)
        if not rows:
            raise UnknownConversation(f"history holds no conversation {conversation!r}")
        return _conversation(*rows[0])

    def conversations(self, limit: int = 100, words: str = "") -> list[Conversation]:
        """Pinned ones first, then the newest; a new message makes its conversation the newest.

        With ``words``, only those whose title or messages have all of them, or words that begin so.
        """
        where, found = search.condition(words, self.owner)
        sql = (
            f"SELECT {LISTED} FROM conversations WHERE {where} AND {OWNED}"  # noqa: S608
            " ORDER BY pinned DESC, touched DESC LIMIT ?"
        )
        rows = self._file.read(sql, *found, *self._twice, limit)
        return [_conversation(*row) for row in rows]

    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title."""
        self._update(conversation, "title", storable(title))

    def pin(self, conversation: str, *, pinned: bool) -> None:
        """Keep a conversation at the top of the list, or let it go."""
        self._update(conversation, "pinned", int(pinned))

    def instruct(self, conversation: str, system: str) -> None:
        """Change the system prompt, from the next answer on."""
        self._update(conversation, "system", storable(system))

    def delete(self, conversation: str) -> None:
        """Delete a conversation and all its messages; the figures of its replies stay."""
        with self._file.writing() as database:
            sql = f"DELETE FROM conversations WHERE id = ? AND {OWNED}"  # noqa: S608
            gone = database.execute(sql, (conversation, *self._twice))
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
        self._check(conversation)
        made = StoredMessage(
            _new_id(), conversation, parent, role, storable(content), finish_reason
        )
        what = f"conversation {conversation!r} or no message {parent!r} in it"
        with references_checked(what), self._file.writing() as database:
            database.execute(INSERT_MESSAGE, asdict(made))
            database.execute(TOUCH, (made.id, conversation))
        return made

    def take_in(self, title: str, system: str, made: Sequence[StoredMessage]) -> Conversation:
        """Store a conversation with all its messages, parents first: all of it or nothing."""
        about = Conversation(_new_id(), storable(title), utc_now(), system=storable(system))
        with self._file.writing() as database:
            database.execute(INSERT_CONVERSATION, self._begun(about))
            rows = (asdict(message) | {"conversation": about.id} for message in made)
            database.executemany(INSERT_MESSAGE, rows)
        return about

    def rewrite(
        self,
        message: str,
        content: str,
        finish_reason: FinishReason | None = None,
        facts: AnswerFacts | None = None,
    ) -> None:
        """Put another text in place of a message's: an answer grows; on disk on return.

        An answer without a finish reason is one that still runs, or that was cut off by a crash.
        """
        with self._file.writing() as database:
            changed = database.execute(
                REWRITE, (storable(content), finish_reason, message, *self._twice)
            )
            if changed.rowcount != 1:
                raise UnknownConversation(f"history holds no message {message!r}")
            if facts is not None:
                database.execute(PUT_FACTS, (message, json.dumps(asdict(facts))))

    def messages(self, conversation: str, leaf: str | None = None) -> list[StoredMessage]:
        """The path from the first message to ``leaf``; without one to the leaf that is open."""
        self._check(conversation)
        return [
            _message(*row)
            for row in self._file.read(PATH, {"conversation": conversation, "leaf": leaf})
        ]

    def tree(self, conversation: str) -> list[StoredMessage]:
        """All messages, parents before children."""
        self._check(conversation)
        sql = f"SELECT {COLUMNS} FROM messages WHERE conversation = ? ORDER BY seq"  # noqa: S608
        return [_message(*row) for row in self._file.read(sql, conversation)]

    def siblings(self, conversation: str) -> dict[str | None, list[str]]:
        """By parent, the ids of its children, oldest first; only where there are several."""
        self._check(conversation)
        rows = self._file.read(SIBLINGS, conversation)
        return {parent or None: children.split() for parent, children in rows}

    def show(self, conversation: str, message: str) -> None:
        """Open the branch of ``message``, down to the newest leaf below it."""
        self._check(conversation)
        named = {"conversation": conversation, "message": message}
        rows = self._file.read(NEWEST_LEAF_BELOW, named)
        if not rows:
            raise UnknownConversation(f"history holds no message {message!r} to show")
        self._update(conversation, "shown", rows[0][0])

    def facts(self, conversation: str) -> dict[str, AnswerFacts]:
        """What is shown under the answers of a conversation, by message."""
        self._check(conversation)
        rows = self._file.read(FACTS, conversation)
        return {message: _facts(json.loads(kept)) for message, kept in rows}

    def _update(self, conversation: str, column: str, value: str | int) -> None:
        with self._file.writing() as database:
            changed = database.execute(
                f"UPDATE conversations SET {column} = ? WHERE id = ? AND {OWNED}",  # noqa: S608
                (value, conversation, *self._twice),
            )
            _expect_one(changed, conversation)

    def _check(self, conversation: str) -> None:
        """Raise UnknownConversation for one of another owner."""
        if self.owner is not None:
            self.conversation(conversation)

    @property
    def _twice(self) -> tuple[str | None, str | None]:
        """The values of ``OWNED``."""
        return self.owner, self.owner

    def _begun(self, made: Conversation) -> tuple[str, ...]:
        return made.id, made.title, made.created, made.system, self.owner or ""


def storable(text: str) -> str:
    """The same text; half characters, which UTF-8 cannot hold, become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _facts(kept: dict[str, Any]) -> AnswerFacts:
    """From what ``asdict`` wrote; fields of later versions are ignored."""
    values = {name: value for name, value in kept.items() if name in KNOWN_FACTS}
    values["spans"] = tuple((start, end) for start, end in values.get("spans", ()))
    return AnswerFacts(**values)


def _conversation(key: str, title: str, created: str, pinned: int, system: str) -> Conversation:
    return Conversation(key, title, created, bool(pinned), system)


def _message(
    key: str, conversation: str, parent: str | None, role: str, content: str, reason: str | None
) -> StoredMessage:
    finish_reason = None if reason is None else FinishReason(reason)
    return StoredMessage(key, conversation, parent, role, content, finish_reason)


def _expect_one(cursor: sqlite3.Cursor, conversation: str) -> None:
    if cursor.rowcount != 1:
        raise UnknownConversation(f"history holds no conversation {conversation!r}")


def _new_id() -> str:
    return uuid.uuid4().hex
