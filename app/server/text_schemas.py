"""What all bodies of requests are made of: strict models, sentences about what is wrong, texts."""

import binascii
import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic_core import PydanticCustomError

from app.chat.attachments import compose, read_attachment
from app.errors import AttachmentRefused

ValueT = TypeVar("ValueT")
_TEXTS = ("text", "input_text", "output_text", "refusal")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_PICTURES = ("image_url", "input_image", "image")


def described(**schema: Any) -> WithJsonSchema:
    """The JSON Schema of values that only a validator here knows, for the description of a route."""
    return WithJsonSchema(schema)


class Strict(BaseModel):
    """A part of a body; its values have the right type, or are refused."""

    model_config = ConfigDict(strict=True)


def sendable(text: str) -> str:
    """A text for a sentence about it: halves of characters, which cannot be sent, as JSON writes them."""
    return text.encode(errors="backslashreplace").decode()


def wrong(problem: str, param: str = "", code: str = "wrong") -> PydanticCustomError:
    """The error of a value; ``param`` names its field where another one is being read."""
    context = {"problem": sendable(problem), **({"param": param} if param else {})}
    return PydanticCustomError(code, "{problem}", context)


def unsupported(problem: str, param: str = "") -> PydanticCustomError:
    """The error of what other servers do and this one does not."""
    return wrong(problem, param, "unsupported")


def valid_unicode(text: ValueT) -> ValueT:
    """Refuse halves of characters, which no tokenizer can take."""
    if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
        raise wrong("half of a surrogate pair is not a character")
    return text


def text_of(content: object, where: str = "", *, result: bool = False) -> str:
    """The texts of a content and its parts, without reasoning; null and nothing are no text.

    In the ``result`` of a call a sentence replaces what is no text: the model reads that something
    was there, and the conversation continues. ``where`` is part of an error.
    """
    parts = content if isinstance(content, list) else [content]
    return "".join(_part_text(part, where, result=result) for part in parts)


def _part_text(part: object, where: str, *, result: bool) -> str:
    match part:
        case str(text) | {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return valid_unicode(text)
        case {"type": "refusal", "refusal": str(text)}:
            return valid_unicode(text)
        case {"type": "document" | "search_result", **fields} if texts := _documented(fields):
            return text_of(texts, where, result=result)
        case None | {"type": "thinking" | "redacted_thinking" | "reasoning"}:
            return ""
        case {"type": "text" | "input_text" | "output_text", "text": None}:
            return ""
        case _:
            read = _file(part)
            return _no_text(part, where, result=result) if read is None else read


def _file(part: object) -> str | None:
    """The text of a file; None where the part is none. Raises PydanticCustomError."""
    try:
        return _file_text(part)
    except AttachmentRefused as error:
        raise wrong(str(error)) from error


def _file_text(part: object) -> str | None:
    """A file as the model reads it; None where the part is no file. Raises AttachmentRefused."""
    match part:
        case {"type": "file", "file": {"file_data": str(data), **about}}:
            return _read_file(about.get("filename"), data)
        case {"type": "input_file", "file_data": str(data), **about}:
            return _read_file(about.get("filename"), data)
        case {"type": "document", "source": {"type": "base64", "data": str(data)}, **about}:
            return _read_file(about.get("title"), data)
        case _:
            return None


def _read_file(name: object, data: str) -> str:
    shown = name if isinstance(name, str) and name else "file"
    start, comma, coded = data.partition(",")
    try:
        stored = b64decode(coded if comma else start, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AttachmentRefused(f"the data of {shown} is not base64: {error}") from error
    return compose("", [read_attachment(shown, stored)])


def _documented(fields: Mapping[Any, Any]) -> list[object]:
    """The parts that a document consists of; none where it is no text."""
    match fields:
        case {"source": {"type": "text", "data": found}} | {"source": {"content": found}}:
            pass
        case {"content": list(found)}:
            pass
        case _:
            return []
    title = fields.get("title")
    parts = found if isinstance(found, list) else [found]
    return [f"{title}\n", *parts] if isinstance(title, str) and title else parts


def _no_text(part: object, where: str, *, result: bool) -> str:
    """What is said instead of a part that is no text; raises PydanticCustomError."""
    match part:
        case bool() | int() | float() | {} if result and not _has_kind(part):
            return valid_unicode(json.dumps(part, ensure_ascii=False))
        case {"type": "tool_reference", "tool_name": str(name)} if result:
            return f"(the tool {sendable(name)} can be called now)"
        case {"type": str(kind)} if result:
            return in_words(kind)
        case {"type": str(kind)} if kind not in _TEXTS:
            place = f" ({where})" if where else ""
            raise unsupported(f"parts of type {kind} are not supported{place}; only text")
        case _:
            place = f"parts of {where}" if where else "a part"
            raise wrong(f'{place} must look like {{"type": "text", "text": "..."}}')


def in_words(kind: str) -> str:
    """What the model reads in place of a part of a kind that is no text."""
    what = "an image" if kind in _PICTURES else f"a part of type {sendable(kind)}"
    return f"({what} was here; this model reads text only)"


def is_no_text(part: object) -> bool:
    """Whether it is a part of a kind that no text can be read from."""
    match part:
        case (
            {"type": "file", "file": {"file_data": str()}}
            | {"type": "input_file", "file_data": str()}
            | {"type": "document", "source": {"type": "base64"}}
        ):
            return False
        case {"type": "document" | "search_result", **fields}:
            return not _documented(fields)
        case {"type": str(kind)}:
            return kind not in (*_TEXTS, *_THOUGHTS)
        case _:
            return False


def _has_kind(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("type"), str)


def thoughts_of(content: object) -> str:
    """The reasoning among the parts of a content; a redacted one is readable only for its author."""
    parts = content if isinstance(content, list) else []
    return "".join(_thought(part) for part in parts if isinstance(part, Mapping))


def _thought(part: Mapping[Any, Any]) -> str:
    match part:
        case {"type": "thinking", "thinking": str(text)} | {"type": "reasoning", "text": str(text)}:
            return valid_unicode(text)
        case {"type": "thinking", "thinking": list(inner)}:
            return text_of(inner)
        case _:
            return ""


def _joined_parts(content: object) -> object:
    """A list of parts as one string; null, which assistants send with tool calls, as none."""
    return text_of(content) if isinstance(content, list) or content is None else content


def _if_text(reasoning: object) -> object:
    """Programs send reasoning back in many forms, often without knowing it."""
    return reasoning if isinstance(reasoning, str) else ""


Unicode = Annotated[str, BeforeValidator(valid_unicode)]
Text = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_joined_parts)]
Reasoning = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_if_text)]
