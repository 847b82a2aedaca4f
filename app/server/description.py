"""The OpenAPI description of the answers; that of the requests comes from their bodies' types."""

from collections.abc import Mapping, Sequence
from typing import Any

Described = dict[int | str, dict[str, Any]]
_TEXT, _NUMBER, _OBJECT, _LIST = (
    {"type": kind} for kind in ("string", "integer", "object", "array")
)
_MAYBE = {"type": ["string", "null"]}
_FIELDS: dict[str, dict[str, Any]] = {  # of answers, by name; each has one type wherever it occurs
    "choices": _LIST, "content": _LIST, "created": _NUMBER, "created_at": {}, "data": _LIST,
    "deleted": {"type": "boolean"},
    "error": {}, "first_id": _MAYBE, "has_more": {"type": "boolean"}, "id": _TEXT,
    "input_tokens": _NUMBER, "last_id": _MAYBE, "model": _TEXT, "output": _LIST, "role": _TEXT,
    "speculation": _OBJECT, "status": _TEXT, "stop_reason": _TEXT, "timings": _OBJECT,
    "usage": _OBJECT, "owned_by": _TEXT, "context_length": _NUMBER, "display_name": _TEXT,
}  # fmt: skip
_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": _TEXT, "event": _TEXT},
}  # in the form of OpenAPI 3.2, which FastAPI has for streams, too
ANSWERED = ("id", "model", "usage", "timings", "speculation")


def _whole(constants: Mapping[str, str], required: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: _FIELDS[name] for name in required}
    fields |= {name: {"const": value} for name, value in constants.items()}
    return {"type": "object", "required": [*fields], "properties": fields}


def _content(schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {media: {"schema": schema}}


def answered(constants: Mapping[str, str], *required: str) -> Described:
    """An object with these fields, and with ``constants`` as they are."""
    content = _content(_whole(constants, required))
    return {200: {"description": "The answer.", "content": content}}


def written(constants: Mapping[str, str], *required: str) -> Described:
    """An answer of the model, whole or as events."""
    described = answered(constants, *ANSWERED, *required)
    described[200]["content"]["text/event-stream"] = {"itemSchema": _EVENT}
    return described


_ERROR = {
    "type": "object",
    "required": ["message", "type", "param", "code"],
    "properties": {"message": _TEXT, "type": _TEXT, "param": _MAYBE, "code": _MAYBE},
}
_REFUSAL = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {"type": {"const": "error"}, "error": _ERROR, "request_id": _TEXT},
}
FAILURES: Described = {
    "4XX": {"description": "The request is wrong.", "content": _content(_REFUSAL)},
    "5XX": {"description": "The answer failed.", "content": _content(_REFUSAL)},
}
