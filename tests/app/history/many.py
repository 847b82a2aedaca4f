"""A history as large as years of use make it."""

import random
import sqlite3
from contextlib import closing

from app.history.store import History

MESSAGES = 10  # of each conversation
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "klmnrst"]


def fill(history: History, conversations: int) -> None:
    """Conversations c0, c1, ... of ten messages with thirty words each."""
    rng = random.Random(7)
    texts = [" ".join(rng.choices(WORDS, k=30)) for _ in range(2000)]
    with closing(sqlite3.connect(history.upkeep.path)) as database, database:
        database.executemany(
            "INSERT INTO conversations(id, title, created, touched) VALUES (?, ?, '2026', ?)",
            ((f"c{n}", " ".join(rng.choices(WORDS, k=4)), n) for n in range(conversations)),
        )
        database.executemany(
            "INSERT INTO messages(id, conversation, parent, role, content, finish_reason)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                (
                    f"m{n}-{k}",
                    f"c{n}",
                    f"m{n}-{k - 1}" if k else None,
                    ("user", "assistant")[k % 2],
                    rng.choice(texts),
                    "stop" if k % 2 else None,
                )
                for n in range(conversations)
                for k in range(MESSAGES)
            ),
        )
