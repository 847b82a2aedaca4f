"""Text files in front of a message: taken in, written into it, and found in it again."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import AttachmentRefused

MAX_BYTES = 2 * 2**20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEAD = re.compile(r"\[File (?P<name>[^\n]+), (?P<length>[0-9]{1,8}) characters\]\n")
_TAIL = "\n[End of file]\n\n"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file as the model reads it."""

    name: str
    text: str


def read_attachment(name: str, data: bytes) -> Attachment:
    """The file's text; raises AttachmentRefused for what is too large or no text."""
    shown = " ".join(name.split())[:120] or "file"
    if len(data) > MAX_BYTES:
        raise AttachmentRefused(
            f"{shown} has {len(data) / 2**20:.1f} MiB; attach a text of at most "
            f"{MAX_BYTES // 2**20} MiB"
        )
    text = _decoded(shown, data).removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise AttachmentRefused(f"{shown} is no text file; attach plain text, code or Markdown")
    if not text.strip():
        raise AttachmentRefused(f"{shown} is empty; attach a file with text")
    return Attachment(shown, text)


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


def _decoded(name: str, data: bytes) -> str:
    encoding = next((kind for mark, kind in _BOMS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise AttachmentRefused(
            f"{name} is no text in UTF-8 or UTF-16 (byte {error.start}); "
            "save it as UTF-8 and attach it again"
        ) from error
