"""Text files among the parts of a message, as clients send them: base64, often as a data address."""

import binascii
from base64 import b64decode

from app.chat.attachments import compose, read_attachment
from app.errors import AttachmentRefused


def file_text(part: object) -> str | None:
    """A file as the model reads it; None where the part is no file. Raises AttachmentRefused."""
    match part:
        case {"type": "file", "file": {"file_data": str(data), **about}}:
            return _read(about.get("filename"), data)
        case {"type": "input_file", "file_data": str(data), **about}:
            return _read(about.get("filename"), data)
        case {"type": "document", "source": {"type": "base64", "data": str(data)}, **about}:
            return _read(about.get("title"), data)
        case _:
            return None


def _read(name: object, data: str) -> str:
    shown = name if isinstance(name, str) and name else "file"
    start, comma, coded = data.partition(",")
    try:
        stored = b64decode(coded if comma else start, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AttachmentRefused(f"the data of {shown} is not base64: {error}") from error
    return compose("", [read_attachment(shown, stored)])
