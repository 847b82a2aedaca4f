"""A conversation as a file: JSON keeps every version, Markdown what is shown."""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import ConversationFileError
from app.history.records import Conversation, StoredMessage
from app.history.store import History, storable
from app.text.decoding import decoded
from engine.request import FinishReason

FORMAT = "slipstream conversation"
MAX_BYTES = 5 * 2**20  # what a page may send in one request, with room for its wrapping
ROLES = {"system": "System", "user": "You", "assistant": "Assistant"}

# A comment, so that any Markdown viewer hides it; the same line inside a message gets a backslash.
_MARK = re.compile(r"<!-- (system|user|assistant) -->")
_MARK_LINE = re.compile(r"(?:^|\n)<!-- (system|user|assistant) -->\n")
_ESCAPED = re.compile(r"\\+<!-- (?:system|user|assistant) -->")


class _MessageInFile(BaseModel):
    model_config = ConfigDict(strict=True)
    id: str = Field(min_length=1, max_length=200)
    parent: str | None = None
    role: Literal["system", "user", "assistant"]
    content: str
    finish_reason: str | None = None


class _ConversationInFile(BaseModel):
    model_config = ConfigDict(strict=True)
    format: Literal["slipstream conversation"]
    title: str = Field(max_length=1000)
    system: str = ""
    messages: list[_MessageInFile] = Field(max_length=100_000)


def to_json(history: History, conversation: str) -> str:
    """All versions, without the facts under answers, which belong to this machine."""
    about = history.conversation(conversation)
    rows = [asdict(message) for message in history.tree(conversation)]
    for row in rows:
        del row["conversation"]
    kept = {"format": FORMAT, "title": about.title, "system": about.system, "messages": rows}
    return json.dumps(kept, ensure_ascii=False, indent=1)


def to_markdown(history: History, conversation: str) -> str:
    """The messages that are shown, each below a comment that says whose it is."""
    about = history.conversation(conversation)
    shown = [("system", about.system)] if about.system else []
    shown += [(message.role, message.content) for message in history.messages(conversation)]
    parts = [f"# {' '.join(about.title.split())}\n"]
    parts += [f"\n<!-- {role} -->\n## {ROLES[role]}\n\n{_escaped(text)}\n" for role, text in shown]
    return "".join(parts)


def take_in(history: History, name: str, data: bytes) -> Conversation:
    """A new conversation from a file of either kind; raises ConversationFileError."""
    if len(data) > MAX_BYTES:
        raise ConversationFileError(
            f"{name} has {len(data) / 2**20:.0f} MiB; a conversation has at most "
            f"{MAX_BYTES // 2**20} MiB"
        )
    text = decoded(data)
    if text is None:
        raise ConversationFileError(
            f"{name} is not a conversation: it is no text; export one as JSON or Markdown"
        )
    if text.lstrip().startswith("{"):
        return _from_json(history, name, text)
    return _from_markdown(history, name, text)


def _from_json(history: History, name: str, text: str) -> Conversation:
    try:
        found = _ConversationInFile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ConversationFileError(
            f"{name} is not a conversation of Slipstream: {place}: {first['msg'].lower()}; only what was "
            "exported here can be imported"
        ) from error
    rows = [message.model_dump() for message in found.messages]
    return _store(history, name, (found.title, found.system), rows)


def _from_markdown(history: History, name: str, text: str) -> Conversation:
    if not _MARK_LINE.search(text):
        text = text.replace("\r\n", "\n")  # an editor has changed the ends of all lines
    parts = _MARK_LINE.split(text)
    head, bodies = parts[0], list(zip(parts[1::2], parts[2::2], strict=True))
    if not bodies:
        raise ConversationFileError(
            f"{name} is not a conversation of Slipstream: it has no line like <!-- user -->"
        )
    title = head.strip().removeprefix("#").strip() or name
    bodies = [(role, _body(role, part)) for role, part in bodies]
    system = bodies.pop(0)[1] if bodies[0][0] == "system" else ""
    rows: list[dict[str, Any]] = []
    for number, (role, content) in enumerate(bodies):
        parent = str(number - 1) if number else None
        ended = FinishReason.STOP if role == "assistant" else None
        row = {"id": str(number), "parent": parent, "role": role}
        rows.append(row | {"content": content, "finish_reason": ended})
    return _store(history, name, (title, system), rows)


def _body(role: str, part: str) -> str:
    """The text between two marks, without our heading and the final line end."""
    text = part.removeprefix(f"## {ROLES[role]}\n\n").removesuffix("\n")
    return "\n".join(map(_unescaped_line, text.split("\n")))


def _escaped(text: str) -> str:
    return "\n".join(map(_escaped_line, text.split("\n")))


def _escaped_line(line: str) -> str:
    return f"\\{line}" if _MARK.fullmatch(line) or _ESCAPED.fullmatch(line) else line


def _unescaped_line(line: str) -> str:
    return line[1:] if _ESCAPED.fullmatch(line) else line


def _store(
    history: History, name: str, about: tuple[str, str], rows: Sequence[dict[str, Any]]
) -> Conversation:
    """All messages under new ids; parents must come before their children."""
    ids: dict[str, str] = {}
    made: list[StoredMessage] = []
    reasons = {reason.value for reason in FinishReason}
    for number, row in enumerate(rows, start=1):
        parent = row["parent"]
        if parent is not None and parent not in ids:
            raise ConversationFileError(
                f"{name}: message {number} follows {parent!r}, which does not come before it"
            )
        if row["id"] in ids:
            raise ConversationFileError(f"{name}: the id {row['id']!r} occurs twice")
        ids[row["id"]] = uuid.uuid4().hex
        reason = row["finish_reason"] if row["finish_reason"] in reasons else None
        made.append(
            StoredMessage(
                ids[row["id"]],
                "",
                None if parent is None else ids[parent],
                row["role"],
                storable(row["content"]),
                None if reason is None else FinishReason(reason),
            )
        )
    return history.take_in(*about, made)
