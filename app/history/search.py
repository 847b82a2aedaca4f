"""What a person types into a search field, as a query of SQLite's full-text index."""

import re

NEWEST = 5000  # matching messages looked at, newest first: a word of every message stays quick

FOUND = f"""
(title LIKE ? ESCAPE '\\' OR id IN (
    SELECT conversation FROM messages WHERE seq IN (
        SELECT rowid FROM messages_text WHERE messages_text MATCH ?
        ORDER BY rowid DESC LIMIT {NEWEST})))
"""  # noqa: S608 - the only thing put in is a number of ours


def query(words: str) -> str:
    """All words, each of them or one that begins so; empty when nothing could be found.

    Quoted, so that no word is read as an operator; the tokenizer splits inside quotes.
    """
    kept = (word.replace('"', " ") for word in words.split())
    return " ".join(f'"{word}"*' for word in kept if re.search(r"\w", word))


def like(words: str) -> str:
    """A pattern of LIKE for titles that have the words as they stand."""
    escaped = re.sub(r"([\\%_])", r"\\\1", words.strip())
    return f"%{escaped}%"
