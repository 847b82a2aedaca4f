"""The bodies of Anthropic's messages, and the ChatRequest of each."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field, model_validator
from typing_extensions import override

from app.request import AS_TAUGHT, ChatRequest, Message, Thinking, ToolCall, ToolUse
from app.server.anthropic.client_tools import with_tools
from app.server.request_body import (
    MOST_MESSAGES,
    REFUSED,
    Limit,
    LimitOrNothing,
    Refusals,
    RequestBody,
    ResponseFormat,
    Stop,
    TextOptions,
    without_empty_end,
)
from app.server.text_schemas import Strict, described, text_of, thoughts_of, valid_unicode, wrong
from app.server.tool_schemas import MOST, REQUIRED, ToolSpec, as_function, read_arguments, tool_use

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}


def _messages(given: object) -> object:
    if not isinstance(given, list) or not 0 < len(given) <= MOST_MESSAGES:
        raise wrong(f"send 1 to {MOST_MESSAGES} messages")
    return without_empty_end([p for place, one in enumerate(given) for p in _parts(one, place)])


def _system(given: object) -> object:
    return text_of(given, "the system prompt")


_SAID = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}
_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": [*ROLES]}, "content": _SAID},
}
Conversation = Annotated[
    Any,
    BeforeValidator(_messages),
    described(type="array", items=_MESSAGE, minItems=1, maxItems=MOST_MESSAGES),
]
"""A tuple of ``Message``."""
System = Annotated[str, BeforeValidator(_system), described(**_SAID)]


def _parts(given: object, place: int) -> Iterator[Message]:
    """One message; a user's message starts with the results of calls."""
    match given:
        case {"role": str(role), "content": content} if role in ROLES:
            where = f"message {place}"
        case _:
            example = '{"role": "user", "content": "..."}'
            raise wrong(f"message {place} must look like {example}")
    blocks = content if isinstance(content, list) else [content]
    results = [block for block in blocks if _kind(block) == "tool_result"]
    yield from (_result(block, where) for block in results)
    calls = tuple(_call(block) for block in blocks if _kind(block) == "tool_use")
    others = [block for block in blocks if _kind(block) not in ("tool_result", "tool_use")]
    text = text_of(others, where)
    if text or calls or not results:
        yield Message(ROLES[role], text, calls, reasoning=thoughts_of(blocks))


def _kind(block: object) -> object:
    return block.get("type") if isinstance(block, dict) else None


def _result(block: dict[str, Any], where: str) -> Message:
    match block:
        case {"tool_use_id": str(call)}:
            output = text_of(block.get("content"), where, result=True)
            return Message("tool", output, answers=valid_unicode(call))
        case _:
            raise wrong("a tool_result must have a tool_use_id")


def _call(block: dict[str, Any]) -> ToolCall:
    match block:
        case {"id": str(call), "name": str(name)}:
            arguments = read_arguments(block.get("input"))
            return ToolCall(valid_unicode(call), valid_unicode(name), arguments)
        case _:
            raise wrong("a tool_use must have an id and a name")


_AS_OUTPUT_FORMAT = "here a format is sent as output_config.format"
# as in ``app.server.openai_chat.schemas``
_REFUSED: Refusals = {
    **{name: known for name, known in REFUSED.items() if name != "function_call"},
    "n": ((1,), "one message comes to a request here; ask again, or use /v1/chat/completions"),
    "response_format": ((), _AS_OUTPUT_FORMAT),
    "json_schema": ((), _AS_OUTPUT_FORMAT),
}
_CHOICES = {"auto": "auto", "any": REQUIRED, "required": REQUIRED, "none": "none"}


def _nested(tool: object) -> object:
    """A tool as chats send it, with its name one level deeper."""
    match tool:
        case {"function": {"name": _}} | {"name": _, "input_schema": _}:
            return as_function(tool)
        case _:
            raise wrong('a tool must look like {"name": "...", "input_schema": {...}}')


OwnTools = Annotated[list[Annotated[ToolSpec, BeforeValidator(_nested)]], Field(max_length=MOST)]


class ToolChoice(Strict):
    """Which tool is to be called."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_any_protocol(cls, choice: Any) -> Any:
        match choice:
            case str(word):
                return {"type": word}
            case {"function": {"name": name}, **rest}:
                return {**rest, "name": name}
            case _:
                return choice

    @property
    def chosen(self) -> str | Mapping[str, str]:
        """As chats say it; raises PydanticCustomError."""
        if self.type in ("tool", "function") and self.name:
            return {"name": self.name}
        if self.type in _CHOICES:
            return _CHOICES[self.type]
        raise wrong('its type may be "auto", "any", "none", or "tool" with a name', "tool_choice")


class ThinkingOptions(Strict):
    """Whether the model thinks before it answers."""

    type: Literal["enabled", "adaptive", "disabled"]


class MessagesBody(RequestBody):
    """A request for a message."""

    refused, prompt_field = _REFUSED, "messages"
    own_tools = ("custom", "function")

    messages: Conversation
    max_tokens: LimitOrNothing
    system: System = ""
    stop: Annotated[Stop | None, Field(validation_alias=AliasChoices("stop_sequences", "stop"))] = (
        None
    )
    tools: OwnTools | None = None
    tool_choice: ToolChoice | None = None
    output_config: TextOptions | None = None
    output_format: ResponseFormat | None = None  # its older name
    thinking: ThinkingOptions | None = None

    @classmethod
    @override
    def _with_tools(cls, body: dict[str, Any]) -> dict[str, Any]:
        return with_tools(body)

    @model_validator(mode="after")
    def _end_in_something_said(self) -> Self:
        last = self.messages[-1] if self.messages else Message("user", "")
        problem = "the last message is empty; there is nothing to answer"
        if last.role == "assistant" and len(self.messages) == 1 and not last.calls:
            problem = "the last message must be the user's, or the beginning of an answer to it"
        elif last.content.strip() or last.calls or last.role == "tool":
            return self
        raise wrong(problem, "messages")

    @override
    def _offered(self) -> ToolUse | None:
        choice = self.tool_choice
        parallel = not (choice and choice.disable_parallel_tool_use)
        chosen = None if choice is None else choice.chosen
        return tool_use(self.tools, chosen, parallel=parallel)

    @property
    @override
    def chat_request(self) -> ChatRequest:
        """The request for the assistant."""
        system = (Message("system", self.system),) if self.system else ()
        messages, prefix = [*self.messages], ""
        if messages[-1].role == "assistant" and not messages[-1].calls:  # its rest is wanted
            prefix = messages.pop().content
        return self._request(
            *system,
            *messages,
            prefix=prefix,
            max_tokens=self.max_tokens if self.max_tokens is None else max(self.max_tokens, 1),
            thinking=self._thinking,
        )

    @property
    def _thinking(self) -> Thinking:
        if self.thinking is None or self.thinking.type == "adaptive":
            return AS_TAUGHT
        return "on" if self.thinking.type == "enabled" else "off"

    @override
    def too_long(self, needed: int, holds: int) -> str:
        return f"prompt is too long: {needed} tokens > {holds} maximum"

    @override
    def _format(self) -> tuple[str, Mapping[str, Any] | None]:
        if self.output_format is not None:
            return "output_format", self.output_format.wanted
        return "output_config", None if self.output_config is None else self.output_config.wanted


class CountBody(MessagesBody):
    """The same conversation, of which only the tokens are counted."""

    max_tokens: Limit = 1
