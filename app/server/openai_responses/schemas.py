"""The body of OpenAI's responses, and its ChatRequest."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import override

from app.request import ChatRequest, Message, ToolCall, ToolUse
from app.server.request_body import (
    REFUSED,
    Count,
    Effort,
    Refusals,
    RequestBody,
    TextOptions,
    thinking_of,
)
from app.server.text_schemas import Strict, Text, Unicode, unsupported, valid_unicode, wrong
from app.server.tool_schemas import MOST, ToolSpec, read_arguments, tool_use

MOST_ITEMS = 2000  # items of a request
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


def _messages(given: object) -> object:
    """Items, or a text as if it were a user's message, as messages."""
    if isinstance(given, str):
        return (Message("user", valid_unicode(given)),)
    if not isinstance(given, list) or not 0 < len(given) <= MOST_ITEMS:
        raise wrong(f"send a text, or a list of 1 to {MOST_ITEMS} items")
    found = [_message(item, place) for place, item in enumerate(given)]
    return tuple(_joined(message for message in found if message is not None))


Items = Annotated[Any, BeforeValidator(_messages)]
"""Messages; a tuple of ``Message``."""


def _message(item: object, place: int) -> Message | None:
    """One item; None where it says nothing."""
    match item:
        case {"type": "reasoning", **parts}:
            reasoning = _thought(parts)
            return Message("assistant", "", reasoning=reasoning) if reasoning else None
        case {"type": "function_call", "call_id": str(call), "name": str(name), "arguments": given}:
            return Message("assistant", "", (_call(call, name, given),))
        case {"type": "function_call_output", "call_id": str(call), "output": given}:
            return Message("tool", _content(given, place), answers=valid_unicode(call))
        case {"type": str(kind)} if kind != "message":
            raise _not_read(f"items of type {kind}", place)
        case {"role": str(role), "content": content} if role in ROLES:
            return Message(ROLES[role], _content(content, place))
        case _:
            raise wrong(
                f'item {place} must look like {{"role": "user", "content": "..."}}, or be a call '
                "of a function or what came of one"
            )


def _call(call: str, name: str, given: object) -> ToolCall:
    arguments = read_arguments(given)
    if not isinstance(arguments, dict):
        raise wrong("the arguments of a call must be an object")
    return ToolCall(valid_unicode(call), valid_unicode(name), arguments)


def _content(content: object, place: int) -> str:
    if isinstance(content, list):
        return "".join(_part(part, place) for part in content)
    if not isinstance(content, str):
        raise wrong(f"the content of item {place} must be a text or a list of texts")
    return valid_unicode(content)


def _part(part: object, place: int) -> str:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return valid_unicode(text)
        case {"type": "refusal", "refusal": str(text)}:
            return valid_unicode(text)
        case {"type": str(kind)}:
            raise _not_read(f"parts of type {kind}", place)
        case _:
            example = '{"type": "input_text", "text": "..."}'
            raise wrong(f"parts of item {place} must look like {example}")


def _thought(item: Mapping[Any, Any]) -> str:
    """The reasoning of an item: in full, or else its summary."""
    for name in ("content", "summary"):
        parts = item.get(name)
        texts = [
            valid_unicode(part["text"])
            for part in (parts if isinstance(parts, list) else ())
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
        if any(texts):
            return "".join(texts)
    return ""


def _not_read(what: str, place: int) -> PydanticCustomError:
    return unsupported(f"{what} are not supported (item {place}); only text and functions")


def _joined(messages: Iterable[Message]) -> list[Message]:
    """Calls join the assistant's message before them, reasoning the message after it."""
    found: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.reasoning:  # an item of its own
            waiting.append(message.reasoning)
        elif message.calls and found and found[-1].role == "assistant":
            last = found.pop()
            reasoning = "\n\n".join(filter(None, [last.reasoning, *waiting]))
            found.append(replace(last, calls=last.calls + message.calls, reasoning=reasoning))
            waiting = []
        else:
            reasoning = "\n\n".join(waiting) if message.role == "assistant" else ""
            found.append(replace(message, reasoning=reasoning))
            waiting = []
    return found


LOGPROBS = "message.output_text.logprobs"
_STATELESS = "answers are not kept here; send the whole conversation as input"
_AS_TEXT_FORMAT = "here a format is sent as text.format"

# as in ``app.server.openai_chat.schemas``
_REFUSED: Refusals = {
    **{name: known for name, known in REFUSED.items() if name != "function_call"},
    "previous_response_id": ((), _STATELESS),
    "conversation": ((), _STATELESS),
    "background": ((False,), _STATELESS),
    "prompt": ((), "there are no stored prompts here; send instructions and input"),
    "n": ((1,), "one answer comes to a request here; ask again, or use /v1/chat/completions"),
    "response_format": ((), _AS_TEXT_FORMAT),
    "json_schema": ((), _AS_TEXT_FORMAT),
}


def _nested(tool: object) -> object:
    """A function as chats send it, with its name one level deeper."""
    match tool:
        case {"type": "function", **rest}:
            return {"type": "function", "function": rest}
        case {"type": str(kind)}:
            raise unsupported(f"tools of type {kind} do not run here; send functions")
        case _:
            return tool


def _chosen(choice: object) -> object:
    match choice:
        case None | "none" | "auto" | "required":
            return choice
        case {"type": "function", "name": str(name)}:
            return {"name": name}
        case _:
            raise wrong(
                'it may be "none", "auto", "required" or {"type": "function", "name": "..."}'
            )


Functions = Annotated[list[Annotated[ToolSpec, BeforeValidator(_nested)]], Field(max_length=MOST)]


class ReasoningOptions(Strict):
    """How much the model thinks before it answers."""

    effort: Effort | None = None


class ResponsesBody(RequestBody):
    """A request for a response."""

    prompt_field = "input"
    refused = _REFUSED

    input: Items
    instructions: Text = ""
    max_output_tokens: Count | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    tools: Functions | None = None
    tool_choice: Annotated[Any, BeforeValidator(_chosen)] = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    metadata: dict[Unicode, Unicode] | None = None
    truncation: Literal["auto", "disabled"] | None = None  # what does not fit is refused either way

    @model_validator(mode="after")
    def _end_in_something(self) -> Self:
        last = self.input[-1] if self.input else Message("user", "")
        if not last.content.strip() and last.role != "tool":
            raise wrong("the last item is empty; there is nothing to answer", "input")
        return self

    @override
    def _offered(self) -> ToolUse | None:
        parallel = self.parallel_tool_calls is not False
        return tool_use(self.tools, self.tool_choice, parallel=parallel)

    @property
    @override
    def chat_request(self) -> ChatRequest:
        """The request for the assistant; instructions come before all messages."""
        system = (Message("system", self.instructions),) if self.instructions else ()
        wanted = self.top_logprobs is not None or LOGPROBS in (self.include or ())
        return self._request(
            *system,
            *self.input,
            max_tokens=self.max_output_tokens or self.max_tokens,
            logprobs=(self.top_logprobs or 0) if wanted else None,
            thinking=thinking_of(self.reasoning.effort if self.reasoning else None),
        )

    @override
    def _format(self) -> tuple[str, Mapping[str, Any] | None]:
        return "text", None if self.text is None else self.text.wanted
