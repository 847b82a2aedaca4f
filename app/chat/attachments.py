"""Text files in front of a message: taken in, written into it, and found in it again."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import AttachmentRefused
from app.text.decoding import decoded

MAX_BYTES = 2 * 2**20
TITLE, LONGEST_NAME = 60, 120  # characters
_HEAD = re.compile(r"\[File (?P<name>[^\n]+), (?P<length>[0-9]{1,8}) characters\]\n")
_TAIL = "\n[End of file]\n\n"
_KINDS = {  # by their first bytes: what people try first
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "an office document or an archive",
    b"\xd0\xcf\x11\xe0": "an office document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
}


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file as the model reads it."""

    name: str
    text: str


def read_file(path: Path) -> Attachment:
    """The file at ``path``, of which no more is read than is taken; raises AttachmentRefused, OSError."""
    if path.exists() and not path.is_file():
        raise AttachmentRefused(f"{path} is no file; name a file with text")
    with path.open("rb") as opened:
        return read_attachment(path.name, opened.read(MAX_BYTES + 1))


def read_attachment(name: str, data: bytes) -> Attachment:
    """The file's text; raises AttachmentRefused for what is too large or no text."""
    shown = _short(" ".join(name.split()), LONGEST_NAME) or "file"
    kind = next((kind for mark, kind in _KINDS.items() if data.startswith(mark)), None)
    if kind is not None:
        raise AttachmentRefused(
            f"{shown} is {kind}, and only text is read here; copy its words into the message, or "
            "save them as a text file"
        )
    if len(data) > MAX_BYTES:
        raise AttachmentRefused(
            f"{shown} is too large; use a text of at most {MAX_BYTES // 2**20} MiB"
        )
    text = decoded(data)
    if text is None:
        raise AttachmentRefused(
            f"{shown} is no text in an encoding that is known here; use plain text, code or Markdown"
        )
    if not text.strip():
        raise AttachmentRefused(f"{shown} is empty; use a file with text")
    return Attachment(shown, text.replace("\r\n", "\n").replace("\r", "\n"))


def compose(text: str, attachments: Sequence[Attachment]) -> str:
    """One message: the files, then what the person wrote."""
    files = (
        f"[File {file.name}, {len(file.text)} characters]\n{file.text}{_TAIL}"
        for file in attachments
    )
    return "".join(files) + text


def split(content: str) -> tuple[tuple[Attachment, ...], str]:
    """The inverse of ``compose``; the length in each head says where its file ends."""
    files: list[Attachment] = []
    while head := _HEAD.match(content):
        end = head.end() + int(head["length"])
        if not content.startswith(_TAIL, end):
            break
        files.append(Attachment(head["name"], content[head.end() : end]))
        content = content[end + len(_TAIL) :]
    return tuple(files), content


def titled(content: str) -> str:
    """A conversation's name: the start of its first message."""
    files, words = split(content)
    line = " ".join(words.split()) or ", ".join(file.name for file in files)
    return _short(line, TITLE)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
