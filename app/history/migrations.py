"""The schema of the history database, as steps that are applied once each, in order."""

from sqlite3 import Connection

MESSAGES = (
    """
    CREATE TABLE conversations (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        created TEXT NOT NULL,
        touched INTEGER NOT NULL UNIQUE  -- grows with every change, unlike a clock
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
    # no longer written: each run has its own depths
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
    # JSON, since it is only ever shown whole
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

# The index points into messages; triggers keep it up to date.
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


PRICES = (
    """
    CREATE TABLE row_prices (
        model TEXT PRIMARY KEY,  -- a digest of its files, the machine and the settings
        prices TEXT NOT NULL,  -- JSON: [[[rows, seconds], ...], seconds by cached token]
        at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)


# An owner is the name of an API key; without one a conversation was begun on this machine.
OWNERS = (
    "ALTER TABLE conversations ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    """
    CREATE TABLE presets_by_owner (
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        system TEXT NOT NULL,
        options TEXT NOT NULL,  -- JSON: sampling by name
        PRIMARY KEY (owner, name)
    ) STRICT, WITHOUT ROWID
    """,
    "INSERT INTO presets_by_owner SELECT '', name, system, options FROM presets",
    "DROP TABLE presets",
    "ALTER TABLE presets_by_owner RENAME TO presets",
)


# Of the folded text, which no other table holds; ``app.history.search`` folds it.
FOLDED = (
    "DROP TRIGGER messages_text_insert",
    "DROP TRIGGER messages_text_delete",
    "DROP TRIGGER messages_text_update",
    "DROP TABLE messages_text",
    """
    CREATE VIRTUAL TABLE messages_text USING fts5(
        content, content='',
        tokenize="unicode61 remove_diacritics 0 categories 'L* M* N* Co So'", prefix='2 3'
    )
    """,
    """
    CREATE TRIGGER messages_text_insert AFTER INSERT ON messages BEGIN
        INSERT INTO messages_text(rowid, content) VALUES (new.seq, folded(new.content));
    END
    """,
    """
    CREATE TRIGGER messages_text_delete AFTER DELETE ON messages BEGIN
        INSERT INTO messages_text(messages_text, rowid, content)
        VALUES ('delete', old.seq, folded(old.content));
    END
    """,
    """
    CREATE TRIGGER messages_text_update AFTER UPDATE OF content ON messages BEGIN
        INSERT INTO messages_text(messages_text, rowid, content)
        VALUES ('delete', old.seq, folded(old.content));
        INSERT INTO messages_text(rowid, content) VALUES (new.seq, folded(new.content));
    END
    """,
    "INSERT INTO messages_text(rowid, content) SELECT seq, folded(content) FROM messages",
)


# In order; a step that was released is never edited. Files up to 0.1.0 hold these names in
# sqlite-utils' table, later ones their count as user_version.
STEPS = {
    "m001_messages": MESSAGES,  # conversations, and their messages as a tree
    "m002_replies": REPLIES,  # what each reply measured, and how much was accepted at each depth
    "m003_runs": RUNS,  # what each drafter had of a reply, and under which conditions
    "m004_chats": CHATS,  # pins, the open branch, facts under answers, presets
    "m005_search": SEARCH,  # an index over the words of all messages
    "m006_prices": PRICES,  # what passes of a model cost, as measured at a load
    "m007_owners": OWNERS,  # whose conversations and presets they are
    "m008_folded": FOLDED,  # the index without accents, in every script
}
APPLICATION_ID = 0x736C6970  # "slip", in the header of a file of ours
OLD_TABLE = "_sqlite_migrations"


class UnknownSchemaError(Exception):
    """The file has a schema that this version does not know; the message says whose it is."""


def applied_steps(connection: Connection) -> int:
    """How many of ``STEPS`` a file has; raises UnknownSchemaError for any other file."""
    if _number(connection, "application_id") == APPLICATION_ID:
        count = _number(connection, "user_version")
        newer = [f"version {count}"] if count > len(STEPS) else []
    else:
        names = _old_names(connection)
        count, newer = len(names), sorted(names - set(STEPS))
    if newer:
        raise UnknownSchemaError(f"a newer version of Slipstream wrote it ({', '.join(newer)})")
    if not count and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise UnknownSchemaError("it is the database of another program")
    return count


def apply_steps(connection: Connection, done: int) -> None:
    """Apply the steps after the first ``done``; inside a transaction."""
    for statements in list(STEPS.values())[done:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(STEPS)}")


def _number(connection: Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _old_names(connection: Connection) -> set[str]:
    known = "SELECT 1 FROM sqlite_master WHERE name = ?"
    if connection.execute(known, (OLD_TABLE,)).fetchone() is None:
        return set()
    sql = f"SELECT name FROM {OLD_TABLE} WHERE migration_set = 'slipstream'"  # noqa: S608
    return {name for (name,) in connection.execute(sql)}
