"""What a conversation is sent as: messages of texts, calls of tools and what came of them."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from app.request import Message, ToolCall
from app.server.text_schemas import sendable, valid_unicode
from app.server.tool_schemas import read_arguments

MOST = 1000  # messages of a request
ROLES = ("user", "assistant", "system")


def _messages(given: object) -> object:
    if not isinstance(given, list) or not 0 < len(given) <= MOST:
        raise PydanticCustomError("messages", "send 1 to {most} messages", {"most": MOST})
    return tuple(part for place, one in enumerate(given) for part in _parts(one, place))


def _system(given: object) -> object:
    return "" if given is None else _content(given, "the system prompt")


Conversation = Annotated[Any, BeforeValidator(_messages)]
"""A tuple of ``Message``."""
System = Annotated[str, BeforeValidator(_system)]


def _parts(given: object, place: int) -> Iterator[Message]:
    """One message; what came of calls stands in the user's, before what the user says."""
    match given:
        case {"role": str(role), "content": content} if role in ROLES:
            where = f"message {place}"
        case _:
            raise PydanticCustomError(
                "message",
                'message {place} must look like {"role": "user", "content": "..."}',
                {"place": place},
            )
    blocks = content if isinstance(content, list) else [content]
    results = [block for block in blocks if _kind(block) == "tool_result"]
    yield from (_result(block, where) for block in results)
    calls = tuple(_call(block) for block in blocks if _kind(block) == "tool_use")
    said = [block for block in blocks if _kind(block) not in ("tool_result", "tool_use")]
    text = _content(said, where)
    if text or calls or not results:
        yield Message(role, text, calls, thought="".join(map(_thought, blocks)))


def _kind(block: object) -> object:
    return block.get("type") if isinstance(block, dict) else None


def _result(block: dict[str, Any], where: str) -> Message:
    match block:
        case {"tool_use_id": str(call)}:
            content = block.get("content") or ""
            return Message("tool", _content(content, where), answers=_text(call))
        case _:
            raise PydanticCustomError("result", "a tool_result must have a tool_use_id")


def _call(block: dict[str, Any]) -> ToolCall:
    match block:
        case {"id": str(call), "name": str(name), "input": dict(given)}:
            arguments: Any = read_arguments(given)
            return ToolCall(_text(call), _text(name), arguments)
        case _:
            raise PydanticCustomError("call", "a tool_use must have an id, a name and an input")


def _thought(block: object) -> str:
    """What the model thought; what is redacted only who redacted it can read."""
    match block:
        case {"type": "thinking", "thinking": str(text)}:
            return _text(text)
        case _:
            return ""


def _content(content: object, where: str) -> str:
    """Texts, one after the other, thoughts apart."""
    blocks = content if isinstance(content, list) else [content]
    return "".join(_block(block, where) for block in blocks)


def _block(block: object, where: str) -> str:
    match block:
        case str(text):
            return _text(text)
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "thinking" | "redacted_thinking"}:
            return ""
        case {"type": str(kind)}:
            context = {"kind": sendable(kind), "where": where}
            raise PydanticCustomError(
                "unsupported",
                "blocks of type {kind} are not supported ({where}); only text and tools",
                context,
            )
        case _:
            raise PydanticCustomError(
                "block",
                'blocks of {where} must look like {"type": "text", "text": "..."}',
                {"where": where},
            )


def _text(text: str) -> str:
    return str(valid_unicode(text))
