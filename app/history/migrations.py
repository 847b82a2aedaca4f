"""The shape of the history database, as steps that are applied once each, in order."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

MESSAGES = (
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created TEXT NOT NULL,
        touched INTEGER NOT NULL UNIQUE  -- grows with every change: order never asks the clock
    ) STRICT
    """,
    # The parent has no cascade: a chain of a thousand messages would pass SQLite's depth limit.
    """
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of writing: a parent is always smaller
        id TEXT NOT NULL UNIQUE,
        conversation TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
        parent TEXT,
        role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
        content TEXT NOT NULL,
        finish_reason TEXT,
        UNIQUE (conversation, id),
        FOREIGN KEY (conversation, parent) REFERENCES messages(conversation, id)
    ) STRICT
    """,
    "CREATE INDEX messages_by_parent ON messages(conversation, parent)",
    "CREATE INDEX messages_by_seq ON messages(conversation, seq)",
)

REPLIES = (
    """
    CREATE TABLE replies (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        message TEXT REFERENCES messages(id) ON DELETE SET NULL,  -- figures outlive the words
        session TEXT,
        model TEXT NOT NULL,
        drafter TEXT NOT NULL,
        why TEXT NOT NULL,
        prompt_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        emitted INTEGER NOT NULL,
        passes INTEGER NOT NULL,
        drafted INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        prompt_seconds REAL NOT NULL,
        decode_seconds REAL NOT NULL,
        at TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX replies_by_drafter ON replies(model, drafter)",
    "CREATE INDEX replies_by_message ON replies(message)",
    """
    CREATE TABLE acceptance (
        reply INTEGER NOT NULL REFERENCES replies(id) ON DELETE CASCADE,
        depth INTEGER NOT NULL,  -- 1 is the first drafted token of a pass
        evaluated INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        PRIMARY KEY (reply, depth)
    ) STRICT, WITHOUT ROWID
    """,
)

# Text and not a table of its own: a reply begins by reading hundreds of runs, each in one piece.
RUNS = (
    "ALTER TABLE replies ADD COLUMN draft TEXT",  # the draft model, empty without one
    "ALTER TABLE replies ADD COLUMN machine TEXT",
    "ALTER TABLE replies ADD COLUMN temperature TEXT",
    "ALTER TABLE replies ADD COLUMN task TEXT",
    "CREATE INDEX replies_by_temperature ON replies(model, draft, temperature)",
    "CREATE INDEX replies_by_task ON replies(model, draft, temperature, task)",
    """
    CREATE TABLE runs (
        reply INTEGER NOT NULL REFERENCES replies(id) ON DELETE CASCADE,
        drafter TEXT NOT NULL,  -- the one that drafted, also where the reply says auto
        passes INTEGER NOT NULL,
        emitted INTEGER NOT NULL,
        drafted INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        seconds REAL NOT NULL,
        plain_seconds REAL NOT NULL,
        depths TEXT NOT NULL,  -- JSON: [[evaluated, ...], [accepted, ...]], depth 1 first
        ranks TEXT NOT NULL,  -- JSON: [share, ...], rank 1 first
        rank_weight REAL NOT NULL,
        PRIMARY KEY (reply, drafter)
    ) STRICT, WITHOUT ROWID
    """,
)

CHATS = (
    "ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversations ADD COLUMN system TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN shown TEXT",  # the leaf that is open; empty: the newest
    "CREATE INDEX conversations_in_order ON conversations(pinned DESC, touched DESC)",
    # JSON, since it is only ever shown whole, under the answer that it belongs to
    """
    CREATE TABLE answers (
        message TEXT PRIMARY KEY REFERENCES messages(id) ON DELETE CASCADE,
        facts TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE presets (
        name TEXT PRIMARY KEY,
        system TEXT NOT NULL,
        options TEXT NOT NULL  -- JSON: sampling by name
    ) STRICT, WITHOUT ROWID
    """,
)

# The words live in messages alone; the index only points there, so triggers keep it in step.
SEARCH = (
    """
    CREATE VIRTUAL TABLE messages_text USING fts5(
        content, content='messages', content_rowid='seq',
        tokenize="unicode61 remove_diacritics 2", prefix='2 3'
    )
    """,
    """
    CREATE TRIGGER messages_text_insert AFTER INSERT ON messages BEGIN
        INSERT INTO messages_text(rowid, content) VALUES (new.seq, new.content);
    END
    """,
    """
    CREATE TRIGGER messages_text_delete AFTER DELETE ON messages BEGIN
        INSERT INTO messages_text(messages_text, rowid, content)
        VALUES ('delete', old.seq, old.content);
    END
    """,
    """
    CREATE TRIGGER messages_text_update AFTER UPDATE OF content ON messages BEGIN
        INSERT INTO messages_text(messages_text, rowid, content)
        VALUES ('delete', old.seq, old.content);
        INSERT INTO messages_text(rowid, content) VALUES (new.seq, new.content);
    END
    """,
    "INSERT INTO messages_text(messages_text) VALUES ('rebuild')",
)


def m001_messages(db: "Database") -> None:
    """Conversations, and their messages as a tree."""
    for statement in MESSAGES:
        db.execute(statement)


def m002_replies(db: "Database") -> None:
    """What each reply measured, and how much was accepted at each depth."""
    for statement in REPLIES:
        db.execute(statement)


def m003_runs(db: "Database") -> None:
    """What each drafter had of a reply, and under which conditions."""
    for statement in RUNS:
        db.execute(statement)


def m004_chats(db: "Database") -> None:
    """Pinned conversations, the branch that is open, what stands under answers, presets."""
    for statement in CHATS:
        db.execute(statement)


def m005_search(db: "Database") -> None:
    """An index over the words of all messages."""
    for statement in SEARCH:
        db.execute(statement)


# A step that was released is never edited.
STEPS = (m001_messages, m002_replies, m003_runs, m004_chats, m005_search)


def migrations() -> "Migrations":
    """Every step so far, for a database to be brought up to date with."""
    from sqlite_utils.migrations import Migrations  # here: it takes half a second

    steps = Migrations("slipstream")
    for step in STEPS:
        steps()(step)
    return steps
