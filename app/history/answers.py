"""What is told under answers, kept with them as JSON."""

import json
from dataclasses import asdict, fields
from sqlite3 import Connection
from typing import Any

from app.history.file import HistoryFile
from app.history.records import AnswerFacts

FACTS = """
SELECT answers.message, answers.facts
FROM messages JOIN answers ON answers.message = messages.id WHERE messages.conversation = ?
"""

KNOWN = frozenset(field.name for field in fields(AnswerFacts))


def put_facts(database: Connection, message: str, facts: AnswerFacts) -> None:
    """Keep ``facts`` of an answer, in place of earlier ones; inside a transaction."""
    database.execute(
        "INSERT INTO answers(message, facts) VALUES (?, ?)"
        " ON CONFLICT(message) DO UPDATE SET facts = excluded.facts",
        (message, json.dumps(asdict(facts))),
    )


def facts_of(file: HistoryFile, conversation: str) -> dict[str, AnswerFacts]:
    """By message, for a whole conversation."""
    rows = file.read(FACTS, conversation)
    return {message: read_facts(json.loads(facts)) for message, facts in rows}


def read_facts(kept: dict[str, Any]) -> AnswerFacts:
    """From what ``asdict`` wrote; fields of later versions are passed over."""
    values = {name: value for name, value in kept.items() if name in KNOWN}
    values["spans"] = tuple((start, end) for start, end in values.get("spans", ()))
    return AnswerFacts(**values)
