"""What all bodies of requests are made of: strict models, sentences about what is wrong, texts."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

ValueT = TypeVar("ValueT")


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


def _part_text(part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)}:
            raise unsupported(f"parts of type {kind} are not supported; only text")
        case _:
            raise wrong('a part must look like {"type": "text", "text": "..."}')


def _joined_parts(content: object) -> object:
    """A list of text parts as one string; null, which assistants send with tool calls, as none."""
    if isinstance(content, list):
        return "".join(_part_text(part) for part in content)
    return "" if content is None else content


def valid_unicode(text: ValueT) -> ValueT:
    """Refuse halves of characters, which no tokenizer can take."""
    if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
        raise wrong("half of a surrogate pair is not a character")
    return text


def _if_text(reasoning: object) -> object:
    """Programs send reasoning back in many forms, often without knowing it."""
    return reasoning if isinstance(reasoning, str) else ""


Unicode = Annotated[str, BeforeValidator(valid_unicode)]
Text = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_joined_parts)]
Reasoning = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_if_text)]
