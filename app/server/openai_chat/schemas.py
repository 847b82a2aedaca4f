"""The bodies of OpenAI's chat and text completions, and the ChatRequest of each."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from typing_extensions import override

from app.request import ChatRequest, Message, ToolUse
from app.server.request_body import (
    REFUSED,
    Count,
    Effort,
    Refusals,
    RequestBody,
    thinking_of,
)
from app.server.text_schemas import Reasoning, Strict, Text, valid_unicode, wrong
from app.server.tool_schemas import Calls, ToolChoice, Tools, checked_json, tool_use


class ChatMessage(Strict):
    """One message; ``developer`` is the newer name of ``system``."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text = ""
    tool_calls: Calls | None = None
    tool_call_id: Text = ""
    reasoning_content: Reasoning = ""
    reasoning: Reasoning = ""  # as some programs call it

    @property
    def message(self) -> Message:
        """The same message as the assistant takes it."""
        calls = tuple(spec.call for spec in self.tool_calls or ())
        role = "system" if self.role == "developer" else self.role
        thought = self.reasoning_content or self.reasoning
        return Message(role, self.content, calls, self.tool_call_id, thought)


class Prediction(Strict):
    """A text that the answer may resemble, such as the file that is to be changed."""

    type: Literal["content"]
    content: Text


class ChatBody(RequestBody):
    """A chat request."""

    prompt_field = "messages"

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1000)]
    max_completion_tokens: Count | None = None
    prediction: Prediction | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    continue_final_message: bool | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, BeforeValidator(checked_json)] = None

    @field_validator("messages")
    @classmethod
    def _end_in_text(cls, messages: list[ChatMessage]) -> list[ChatMessage]:
        if not messages[-1].content.strip() and messages[-1].role != "tool":
            raise wrong("the last message is empty; there is nothing to answer")
        return messages

    @field_validator("prediction", mode="before")
    @classmethod
    def _look_like_one(cls, prediction: object) -> object:
        if prediction is not None and not isinstance(prediction, dict):
            raise wrong('a prediction must look like {"type": "content", "content": "..."}')
        return prediction

    @field_validator("top_logprobs")
    @classmethod
    def _go_with_logprobs(cls, many: int | None, info: ValidationInfo) -> int | None:
        if many and not info.data.get("logprobs"):
            raise wrong("set logprobs to true to get likeliest tokens, too")
        return many

    @model_validator(mode="after")
    def _go_on_with_an_answer(self) -> Self:
        last = self.messages[-1]
        has_prefix = len(self.messages) > 1 and last.role == "assistant" and not last.tool_calls
        if self.continue_final_message and not has_prefix:
            problem = "the last message must be the beginning of an answer"
            raise wrong(problem, "continue_final_message")
        return self

    @override
    def _offered(self) -> ToolUse | None:
        parallel = self.parallel_tool_calls is not False
        return tool_use(self.tools, self.tool_choice, parallel=parallel)

    @property
    @override
    def chat_request(self) -> ChatRequest:
        """The request for the assistant; the newer of the two token limits wins."""
        messages = [entry.message for entry in self.messages]
        prefix = messages.pop().content if self.continue_final_message else ""
        return self._request(
            *messages,
            prefix=prefix,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            prediction="" if self.prediction is None else self.prediction.content,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            thinking=thinking_of(self.reasoning_effort),
            variables=self.chat_template_kwargs or {},
        )


_NO_TOOLS = "tools are not supported here; send messages to /v1/chat/completions"
_NO_ECHO = "the answer comes without the prompt; leave it out, and put the prompt before the answer"
_NO_SUFFIX = "write the model's own control texts for the middle of a file into the prompt"

USUAL_TOKENS = 16  # of a completion, as OpenAI has it
_REFUSED_OF_TEXT: Refusals = {
    **REFUSED,
    "tools": (([],), _NO_TOOLS),
    "tool_choice": (("none", "auto"), _NO_TOOLS),
    "echo": ((False,), _NO_ECHO),
    "suffix": (("",), _NO_SUFFIX),
}


def _only_prompt(prompt: object) -> object:
    """The text of a list with one."""
    match prompt:
        case "" | [""] | []:
            raise wrong("the prompt is empty; there is nothing to continue")
        case [str(text)]:
            return text
        case [int(), *_] | [[int(), *_], *_]:
            raise wrong("send the prompt as text, not as token ids")
        case [_, _, *_]:
            raise wrong("send one prompt per request")
        case _:
            return prompt


Prompt = Annotated[str, BeforeValidator(valid_unicode), BeforeValidator(_only_prompt)]


class CompletionBody(RequestBody):
    """A text that the model continues as it is."""

    refused, prompt_field = _REFUSED_OF_TEXT, "prompt"

    prompt: Prompt
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    @override
    def chat_request(self) -> ChatRequest:
        """The request for the assistant."""
        most = self.max_tokens or USUAL_TOKENS
        return self._request(text=self.prompt, max_tokens=most, logprobs=self.logprobs)
