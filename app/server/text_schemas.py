"""Texts in the bodies of requests: plain ones, or lists of text parts."""

from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError


def sendable(text: str) -> str:
    """A text for a sentence about it: halves of characters, which cannot be sent, as JSON writes them."""
    return text.encode(errors="backslashreplace").decode()


def _part_text(part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)}:
            raise PydanticCustomError(
                "unsupported",
                "parts of type {kind} are not supported; only text",
                {"kind": sendable(kind)},
            )
        case _:
            raise PydanticCustomError(
                "part", 'a part must look like {"type": "text", "text": "..."}'
            )


def _joined_parts(content: object) -> object:
    """A list of text parts as one string; null, which assistants send with tool calls, as none."""
    if isinstance(content, list):
        return "".join(_part_text(part) for part in content)
    return "" if content is None else content


def valid_unicode(text: object) -> object:
    """Refuse halves of characters, which no tokenizer can take."""
    if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
        raise PydanticCustomError("unicode", "half of a surrogate pair is not a character")
    return text


def _if_text(reasoning: object) -> object:
    """Programs send reasoning back in many forms, often without knowing it."""
    return reasoning if isinstance(reasoning, str) else ""


Unicode = Annotated[str, BeforeValidator(valid_unicode)]
Text = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_joined_parts)]
Reasoning = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_if_text)]
