"""Which conversations hold the words of a search, in any script, with or without accents."""

import re
import sqlite3
from unicodedata import normalize

NEWEST_MATCHES = 5000  # matching messages looked at: a word of every message stays fast

# Accents, points and vowel marks that people leave out, and what no one sees.
_MARKS = re.compile(
    "[\u00ad\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff]+"
)
_LETTERS = str.maketrans(  # that are no letter with an accent, and are typed so
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "ħ": "h"}  # noqa: RUF001
)
# Thai, Lao, Tibetan, Burmese, Khmer, Korean, Chinese, Japanese have no spaces between words, or endings
# at them, and no one puts spaces around emoji: each character is a word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2600-\u27bf\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U0001f000-\U0001faff\U00020000-\U0003ffff]"
)
_WORDS = f"""
SELECT conversation FROM messages WHERE seq IN (
    SELECT rowid FROM messages_text WHERE messages_text MATCH ?
    ORDER BY rowid DESC LIMIT {NEWEST_MATCHES})
"""  # noqa: S608 - the only thing put in is a number of ours
_WORDS_OF_OWNER = f"""
SELECT messages.conversation FROM messages_text
JOIN messages ON messages.seq = messages_text.rowid
JOIN conversations ON conversations.id = messages.conversation
WHERE messages_text MATCH ? AND conversations.owner = ?
ORDER BY messages_text.rowid DESC LIMIT {NEWEST_MATCHES}
"""  # noqa: S608 - the same


def folded(text: str) -> str:
    """``text`` as the search compares it: without case and accents, its words apart."""
    if text.isascii():
        return text.lower()
    bare = _MARKS.sub("", normalize("NFKD", text.casefold()))
    return _UNSPACED.sub(r" \g<0> ", normalize("NFC", bare).translate(_LETTERS))


def teach(connection: sqlite3.Connection) -> None:
    """Let the database fold texts: its triggers do when messages are written."""
    connection.create_function("folded", 1, folded, deterministic=True)
    connection.execute("PRAGMA trusted_schema = ON")  # else some builds let no trigger call it


def condition(words: str, owner: str | None) -> tuple[str, list[str]]:
    """What holds for conversations with all ``words``, or words that begin so, in title or messages.

    An SQL expression over ``conversations``, and its values.
    """
    kept = [folded(word) for word in words.replace("\0", " ").split()]
    kept = [word for word in kept if re.search(r"\w", word) or _UNSPACED.search(word)]
    if not kept:
        return "true", []
    inside = f"id IN ({_WORDS if owner is None else _WORDS_OF_OWNER})"
    of = [] if owner is None else [owner]
    # Quoted, so that no word is read as an operator of the index.
    quoted = ['"{}"*'.format(word.replace('"', " ")) for word in kept]
    each = " AND ".join(rf"(folded(title) LIKE ? ESCAPE '\' OR {inside})" for _ in kept)
    values = [
        value
        for word, query in zip(kept, quoted, strict=True)
        for value in (_like(word), query, *of)
    ]
    # All in one message, as well: of words that are everywhere, each alone is looked for in the newest.
    return f"({each} OR {inside})", [*values, " ".join(quoted), *of]


def _like(word: str) -> str:
    """A pattern of LIKE for titles that contain the word."""
    return "%{}%".format(re.sub(r"([\\%_])", r"\\\1", word))
