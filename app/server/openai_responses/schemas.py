"""The body of a request for a response, and the Turn that it stands for."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import override

from app.request import ChatRequest, Message, ToolUse
from app.server.openai_chat.schemas import (
    REFUSED,
    Calling,
    Count,
    Effort,
    ResponseFormat,
    thinking_of,
)
from app.server.openai_responses.items import Items
from app.server.text_schemas import Text, Unicode, sendable
from app.server.tool_schemas import MOST, ToolSpec, tool_use

LOGPROBS = "message.output_text.logprobs"
_STATELESS = "answers are not kept here; send the whole conversation as input"
_AS_TEXT_FORMAT = "here a format is sent as text.format"

# as in ``app.server.openai_chat.schemas``
_REFUSED: Mapping[str, tuple[tuple[object, ...], str]] = {
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
    """A function as chats send it, whose name stands one level deeper."""
    match tool:
        case {"type": "function", **rest}:
            return {"type": "function", "function": rest}
        case {"type": str(kind)}:
            raise PydanticCustomError(
                "unsupported",
                "tools of type {kind} do not run here; send functions",
                {"kind": sendable(kind)},
            )
        case _:
            return tool


def _chosen(choice: object) -> object:
    match choice:
        case None | "none" | "auto" | "required":
            return choice
        case {"type": "function", "name": str(name)}:
            return {"name": name}
        case _:
            raise PydanticCustomError(
                "choice",
                'it may be "none", "auto", "required" or {"type": "function", "name": "..."}',
            )


Functions = Annotated[list[Annotated[ToolSpec, BeforeValidator(_nested)]], Field(max_length=MOST)]


class TextOptions(BaseModel):
    """What the answer may look like."""

    model_config = ConfigDict(strict=True)

    format: ResponseFormat | None = None


class ReasoningOptions(BaseModel):
    """How much the model thinks before it answers."""

    model_config = ConfigDict(strict=True)

    effort: Effort | None = None


class ResponsesBody(Calling):
    """A request for a response."""

    filling = "input"
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
            context = {
                "said": "the last item is empty; there is nothing to answer",
                "param": "input",
            }
            raise PydanticCustomError("empty", "{said}", context)
        return self

    @override
    def _offered(self) -> ToolUse | None:
        parallel = self.parallel_tool_calls is not False
        return tool_use(self.tools, self.tool_choice, parallel=parallel)

    @property
    @override
    def turn(self) -> ChatRequest:
        """What the assistant is asked; instructions come before all that was said."""
        told = (Message("system", self.instructions),) if self.instructions else ()
        wanted = self.top_logprobs is not None or LOGPROBS in (self.include or ())
        return ChatRequest(
            messages=(*told, *self.input),
            sampling=self.sampling,
            max_tokens=self.max_output_tokens or self.max_tokens,
            stop=tuple(self.stop or ()),
            drafter=self.drafter,
            grammar=self._grammar,
            use=self.use,
            logprobs=(self.top_logprobs or 0) if wanted else None,
            thinking=thinking_of(self.reasoning.effort if self.reasoning else None),
        )

    @override
    def _format(self) -> tuple[str, Mapping[str, Any] | None]:
        told = None if self.text is None else self.text.format
        return "text", None if told is None else told.wanted
