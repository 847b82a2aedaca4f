"""The body of OpenAI's responses, and its ChatRequest."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from app.request import ChatRequest, Message, ToolCall, ToolUse
from app.server.request_body import (
    REFUSED,
    Effort,
    Limit,
    Refusals,
    RequestBody,
    TextOptions,
    thinking_of,
)
from app.server.text_schemas import (
    Strict,
    Text,
    Unicode,
    text_of,
    unsupported,
    valid_unicode,
    wrong,
)
from app.server.tool_schemas import Tools, read_arguments, tool_use

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
        case {"type": "function_call", "call_id": str(call), "name": str(name), **rest}:
            return Message("assistant", "", (_call(call, name, rest.get("arguments")),))
        case {"type": "custom_tool_call", "call_id": str(call), "name": str(name), "input": given}:
            return Message("assistant", "", (_call(call, name, {"input": given}),))
        case {
            "type": "function_call_output" | "custom_tool_call_output",
            "call_id": str(call),
            "output": given,
        }:
            output = text_of(given, f"item {place}", result=True)
            return Message("tool", output, answers=valid_unicode(call))
        case {"type": str(kind)} if kind != "message":
            raise unsupported(
                f"items of type {kind} are not supported (item {place}); only text and functions"
            )
        case {"role": str(role), "content": content} if role in ROLES:
            return Message(ROLES[role], _content(content, place))
        case _:
            raise wrong(
                f'item {place} must look like {{"role": "user", "content": "..."}}, or be a call '
                "of a function or what came of one"
            )


def _call(call: str, name: str, given: object) -> ToolCall:
    return ToolCall(valid_unicode(call), valid_unicode(name), read_arguments(given))


def _content(content: object, place: int) -> str:
    if not isinstance(content, str | list):
        raise wrong(f"the content of item {place} must be a text or a list of texts")
    return text_of(content, f"item {place}")


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


class ReasoningOptions(Strict):
    """How much the model thinks before it answers."""

    effort: Effort | None = None


class ResponsesBody(RequestBody):
    """A request for a response."""

    prompt_field = "input"
    refused = _REFUSED

    input: Items
    instructions: Text = ""
    max_output_tokens: Limit = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    tools: Tools | None = None
    tool_choice: Annotated[Any, BeforeValidator(_chosen)] = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    metadata: dict[Unicode, Unicode] | None = None
    truncation: Literal["auto", "disabled"] | None = None  # what does not fit is refused either way

    @model_validator(mode="after")
    def _end_in_something(self) -> Self:
        last = self.input[-1] if self.input else Message("user", "")
        if not (last.content.strip() or last.calls or last.role == "tool"):
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
