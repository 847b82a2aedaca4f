"""The body of OpenAI's responses, and its ChatRequest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import override

from app.request import ChatRequest, Message, ToolCall, ToolUse
from app.server.openai_responses.client_tools import (
    ADDED,
    CALLS,
    KINDS,
    RESULTS,
    OfferedTools,
    full_name,
    result_of,
    with_tools,
)
from app.server.openai_responses.kept import Kept
from app.server.request_body import (
    MOST_MESSAGES,
    REFUSED,
    Effort,
    Limit,
    Refusals,
    RequestBody,
    TextOptions,
    thinking_of,
    without_empty_end,
)
from app.server.text_schemas import (
    Strict,
    Text,
    Unicode,
    described,
    text_of,
    unsupported,
    valid_unicode,
    wrong,
)
from app.server.tool_schemas import (
    CHOICE,
    allowed_tools,
    called_name,
    chosen_tools,
    read_arguments,
    tool_use,
)

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


@dataclass(frozen=True, slots=True)
class Reference:
    """The id of an item of an earlier answer, in place of the item."""

    id: str


def _messages(given: object) -> object:
    """Items, or a text as if it were a user's message, as messages and references."""
    if isinstance(given, str):
        return (Message("user", valid_unicode(given)),)
    if not isinstance(given, list) or not 0 < len(given) <= MOST_MESSAGES:
        raise wrong(f"send a text, or a list of 1 to {MOST_MESSAGES} items")
    return without_empty_end(_entries(given))


_ITEMS = {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": MOST_MESSAGES}
Items = Annotated[
    Any, BeforeValidator(_messages), described(anyOf=[{"type": "string", "minLength": 1}, _ITEMS])
]
"""A tuple of ``Message``, one for each item, and of ``Reference``."""


def _entries(items: Sequence[object]) -> tuple[Message | Reference, ...]:
    found = (_entry(item, place) for place, item in enumerate(items))
    return tuple(entry for entry in found if entry is not None)


def messages_of(items: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Items of an answer as messages."""
    return tuple(entry for entry in _entries(items) if isinstance(entry, Message))


def _entry(item: object, place: int) -> Message | Reference | None:
    """One item; None where it says nothing."""
    match item:
        case {"type": "item_reference", "id": str(name)}:
            return Reference(valid_unicode(name))
        case {"type": "reasoning", **parts}:
            reasoning = _thought(parts)
            return Message("assistant", "", reasoning=reasoning) if reasoning else None
        case {"type": str(kind), **rest} if kind in (*CALLS, *RESULTS):
            return _run(kind, rest, f"item {place}")
        case {"type": "additional_tools"}:
            return None
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


def _run(kind: str, item: Mapping[Any, Any], where: str) -> Message | None:
    """A call, or what came of one; None where the provider ran it."""
    call = valid_unicode(item.get("call_id") or item.get("id"))
    if item.get("execution") == "server":
        return None
    if not isinstance(call, str):
        raise wrong(f"{where} must have a call_id")
    if kind in RESULTS:
        return Message("tool", result_of(kind, item, where), answers=call)
    name, arguments = CALLS[kind](item)
    name = called_name(name)
    if not isinstance(name, str):
        raise wrong(f"{where} must have the name of what is called")
    found = ToolCall(call, valid_unicode(name), read_arguments(arguments))
    return Message("assistant", "", (found,))


def _content(content: object, place: int) -> str:
    if not isinstance(content, str | list | None):
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


def joined(messages: Iterable[Message]) -> list[Message]:
    """Calls join the assistant's message before them, reasoning the message after it.

    What was joined before stays as it is.
    """
    found: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        thoughts = [*waiting, *filter(None, [message.reasoning])]
        if message.reasoning and not (message.content or message.calls):  # an item of its own
            waiting = thoughts
            continue
        waiting = []
        if message.calls and not message.content and found and found[-1].role == "assistant":
            last = found.pop()
            reasoning = "\n\n".join(filter(None, [last.reasoning, *thoughts]))
            found.append(replace(last, calls=last.calls + message.calls, reasoning=reasoning))
        else:
            reasoning = "\n\n".join(thoughts) if message.role == "assistant" else ""
            found.append(replace(message, reasoning=reasoning))
    return found


LOGPROBS = "message.output_text.logprobs"
_NO_CONVERSATIONS = (
    "there are no stored conversations here; send previous_response_id, or the whole one as input"
)
_NO_BACKGROUND = "an answer comes to the request that asks for it; leave this out"
_AS_TEXT_FORMAT = "here a format is sent as text.format"

# as in ``app.server.openai_chat.schemas``
_REFUSED: Refusals = {
    **{name: known for name, known in REFUSED.items() if name != "function_call"},
    "conversation": ((), _NO_CONVERSATIONS),
    "background": ((False,), _NO_BACKGROUND),
    "prompt": ((), "there are no stored prompts here; send instructions and input"),
    "n": ((1,), "one answer comes to a request here; ask again, or use /v1/chat/completions"),
    "response_format": ((), _AS_TEXT_FORMAT),
    "json_schema": ((), _AS_TEXT_FORMAT),
}


def _chosen(choice: object) -> object:
    match choice:
        case None | "none" | "auto" | "required":
            return choice
        case {"type": "function" | "custom", "name": str(name), **rest}:
            return {"name": full_name(rest.get("namespace"), name)}
        case {"type": str(kind)} if kind in KINDS:
            return {"name": kind}
        case {"type": "allowed_tools", "mode": mode, "tools": list(tools)}:
            return allowed_tools(mode, [_allowed(tool) for tool in tools])
        case _:
            return chosen_tools(choice)


def _allowed(tool: object) -> object:
    match tool:
        case {"type": str(kind)} if kind in KINDS:
            return {"name": kind}
        case {"type": "function" | "custom", "name": str(name), "namespace": group}:
            return {"name": full_name(group, name)}
        case _:
            return tool


class ReasoningOptions(Strict):
    """How much the model thinks before it answers."""

    effort: Effort | None = None


class ResponsesBody(RequestBody):
    """A request for a response."""

    prompt_field = "input"
    refused = _REFUSED
    own_items = (
        "message", "reasoning", "item_reference", ADDED, *CALLS, *RESULTS,
    )  # fmt: skip

    input: Items
    previous_response_id: Unicode | None = None
    store: bool | None = None
    instructions: Text = ""
    max_output_tokens: Limit = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    tools: OfferedTools | None = None
    tool_choice: Annotated[Any, BeforeValidator(_chosen), described(**CHOICE)] = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[str] | None = None
    metadata: dict[Unicode, Unicode] | None = None
    truncation: Literal["auto", "disabled"] | None = None  # what does not fit is refused either way

    @classmethod
    @override
    def _with_tools(cls, body: dict[str, Any]) -> dict[str, Any]:
        return with_tools(body)

    @model_validator(mode="after")
    def _end_in_something(self) -> Self:
        said = joined(entry for entry in self.input if isinstance(entry, Message))
        last = said[-1] if said else Message("user", "")
        refers = bool(self.input) and isinstance(self.input[-1], Reference)
        if not (refers or last.content.strip() or last.calls or last.role == "tool"):
            raise wrong("the last item is empty; there is nothing to answer", "input")
        return self

    @property
    def stored(self) -> bool:
        """Whether later requests may name the answer."""
        return self.store is not False

    def resolved(self, kept: Kept) -> Self:
        """With the earlier answers that it names, as if all of it had been sent. Raises ApiError."""
        name = self.previous_response_id
        before = () if name is None else kept.response(name, "previous_response_id").conversation
        named = (
            messages_of([kept.item(entry.id)]) if isinstance(entry, Reference) else (entry,)
            for entry in self.input
        )
        messages = joined([*before, *(message for part in named for message in part)])
        return self.model_copy(update={"input": tuple(messages)})

    @override
    def _offered(self) -> ToolUse | None:
        parallel = self.parallel_tool_calls is not False
        return tool_use(self.tools, self.tool_choice, parallel=parallel)

    @property
    @override
    def chat_request(self) -> ChatRequest:
        """The request for the assistant, of a resolved body; instructions come before all messages."""
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
