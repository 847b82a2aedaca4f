"""What a conversation is sent as: messages, calls of functions and what came of them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from app.request import Message, ToolCall
from app.server.text_schemas import sendable, valid_unicode
from app.server.tool_schemas import read_arguments

MOST = 2000  # items of a request
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


def _messages(given: object) -> object:
    """Items, or a text as if it were a user's message, as messages."""
    if isinstance(given, str):
        return (Message("user", _text(given)),)
    if not isinstance(given, list) or not 0 < len(given) <= MOST:
        raise PydanticCustomError(
            "items", "send a text, or a list of 1 to {most} items", {"most": MOST}
        )
    found = [_message(item, place) for place, item in enumerate(given)]
    return tuple(_joined(message for message in found if message is not None))


Items = Annotated[Any, BeforeValidator(_messages)]
"""Messages; a tuple of ``Message``."""


def _message(item: object, place: int) -> Message | None:
    """One item; None where it says nothing."""
    match item:
        case {"type": "reasoning", **parts}:
            thought = _thought(parts)
            return Message("assistant", "", thought=thought) if thought else None
        case {"type": "function_call", "call_id": str(call), "name": str(name), "arguments": told}:
            return Message("assistant", "", (_call(call, name, told),))
        case {"type": "function_call_output", "call_id": str(call), "output": told}:
            return Message("tool", _content(told, place), answers=_text(call))
        case {"type": str(kind)} if kind != "message":
            raise _unsupported(f"items of type {kind}", place)
        case {"role": str(role), "content": content} if role in ROLES:
            return Message(ROLES[role], _content(content, place))
        case _:
            raise PydanticCustomError(
                "item",
                'item {place} must look like {"role": "user", "content": "..."}, or be a call of a '
                "function or what came of one",
                {"place": place},
            )


def _call(call: str, name: str, told: object) -> ToolCall:
    arguments = read_arguments(told)
    if not isinstance(arguments, dict):
        raise PydanticCustomError("arguments", "the arguments of a call must be an object")
    return ToolCall(_text(call), _text(name), arguments)


def _content(content: object, place: int) -> str:
    if isinstance(content, list):
        return "".join(_part(part, place) for part in content)
    if not isinstance(content, str):
        raise PydanticCustomError(
            "content",
            "the content of item {place} must be a text or a list of texts",
            {"place": place},
        )
    return _text(content)


def _part(part: object, place: int) -> str:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return _text(text)
        case {"type": "refusal", "refusal": str(text)}:
            return _text(text)
        case {"type": str(kind)}:
            raise _unsupported(f"parts of type {kind}", place)
        case _:
            raise PydanticCustomError(
                "part",
                'parts of item {place} must look like {"type": "input_text", "text": "..."}',
                {"place": place},
            )


def _thought(item: Mapping[Any, Any]) -> str:
    """What the model thought, as it was told: in full, or else in short."""
    for name in ("content", "summary"):
        parts = item.get(name)
        texts = [
            _text(part["text"])
            for part in (parts if isinstance(parts, list) else ())
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        if any(texts):
            return "".join(texts)
    return ""


def _unsupported(what: str, place: int) -> PydanticCustomError:
    context = {"what": sendable(what), "place": place}
    return PydanticCustomError(
        "unsupported", "{what} are not supported (item {place}); only text and functions", context
    )


def _text(text: str) -> str:
    return str(valid_unicode(text))


def _joined(messages: Iterable[Message]) -> list[Message]:
    """Calls belong to the message of the assistant that they came with, and a thought to what it led to."""
    found: list[Message] = []
    thoughts: list[str] = []
    for message in messages:
        if message.thought:  # an item of its own
            thoughts.append(message.thought)
        elif message.calls and found and found[-1].role == "assistant":
            last = found.pop()
            thought = "\n\n".join(filter(None, [last.thought, *thoughts]))
            found.append(replace(last, calls=last.calls + message.calls, thought=thought))
            thoughts = []
        else:
            thought = "\n\n".join(thoughts) if message.role == "assistant" else ""
            found.append(replace(message, thought=thought))
            thoughts = []
    return found
