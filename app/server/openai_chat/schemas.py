"""The bodies of OpenAI's chat and text completions, and the ChatRequest of each."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from typing_extensions import override

from app.request import ChatRequest, Message, ToolUse
from app.server.request_body import (
    MOST_MESSAGES,
    REFUSED,
    Effort,
    Limit,
    Refusals,
    RequestBody,
    thinking_of,
    without_empty_end,
)
from app.server.text_schemas import (
    Reasoning,
    Strict,
    Text,
    described,
    text_of,
    thoughts_of,
    valid_unicode,
    wrong,
)
from app.server.tool_schemas import Calls, ToolChoice, Tools, checked_json, tool_use


class ChatMessage(Strict):
    """One message; ``developer`` is the newer name of ``system``."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text = ""
    refusal: Text = ""
    tool_calls: Calls | None = None
    tool_call_id: Text = ""
    reasoning_content: Reasoning = ""
    reasoning: Reasoning = ""  # as some programs call it
    prefix: bool | None = None  # of the last answer: it is to be continued, as Mistral has it

    @model_validator(mode="before")
    @classmethod
    def _as_it_is_sent_now(cls, message: Any) -> Any:
        """What was called a function before there were tools, and reasoning among the parts."""
        match message:
            case {"role": "function"}:
                return {**message, "role": "tool"}
            case {"role": "assistant", "function_call": {"name": _} as call}:
                message = {
                    **message,
                    "tool_calls": message.get("tool_calls") or [{"function": call}],
                }
            case _:
                pass
        match message:
            case {"role": "assistant", "content": list(parts)} if thought := thoughts_of(parts):
                return {"reasoning": thought, **message}
            case _:
                return message

    @field_validator("content", mode="before")
    @classmethod
    def _of_parts(cls, content: object, info: ValidationInfo) -> object:
        result = info.data.get("role") == "tool"
        return text_of(content, result=result) if result or isinstance(content, list) else content

    @property
    def message(self) -> Message:
        """The same message as the assistant takes it."""
        calls = tuple(spec.call for spec in self.tool_calls or ())
        role = "system" if self.role == "developer" else self.role
        thought = self.reasoning_content or self.reasoning
        return Message(role, self.content or self.refusal, calls, self.tool_call_id, thought)


class Prediction(Strict):
    """A text that the answer may resemble, such as the file that is to be changed."""

    type: Literal["content"]
    content: Text


class ChatBody(RequestBody):
    """A chat request."""

    prompt_field = "messages"

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_completion_tokens: Limit = None
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
        messages = messages[: len(without_empty_end([entry.message for entry in messages]))]
        last = messages[-1].message
        if not (last.content.strip() or last.calls or last.role == "tool"):
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
        if self.continue_final_message and not self._continues:
            problem = "the last message must be the beginning of an answer"
            raise wrong(problem, "continue_final_message")
        return self

    @property
    def _continues(self) -> bool:
        last = self.messages[-1]
        has_prefix = len(self.messages) > 1 and last.role == "assistant" and not last.tool_calls
        return has_prefix and bool(self.continue_final_message or last.prefix)

    @override
    def _offered(self) -> ToolUse | None:
        parallel = self.parallel_tool_calls is not False
        return tool_use(self.tools, self.tool_choice, parallel=parallel)

    @property
    @override
    def chat_request(self) -> ChatRequest:
        """The request for the assistant; the newer of the two token limits wins."""
        messages = [entry.message for entry in self.messages]
        prefix = messages.pop().content if self._continues else ""
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
_NO_SUFFIX = "write the model's own control texts for the middle of a file into the prompt"

USUAL_TOKENS = 16  # of a completion, as OpenAI has it
_REFUSED_OF_TEXT: Refusals = {
    **REFUSED,
    "tools": (([],), _NO_TOOLS),
    "tool_choice": (("none", "auto"), _NO_TOOLS),
    "suffix": (("",), _NO_SUFFIX),
}


MOST_PROMPTS = 128  # of a request
MOST_TOKENS = 2**20  # of a prompt


def _prompts(given: object) -> tuple[str | tuple[int, ...], ...]:
    """Texts or lists of token ids, of which one may come without a list around it."""
    one = isinstance(given, str) or (isinstance(given, list) and given and _is_token(given[0]))
    prompts = [given] if one else given
    if not isinstance(prompts, list):
        raise wrong("a prompt is a text, a list of token ids, or a list of these")
    if len(prompts) > MOST_PROMPTS:
        raise wrong(f"{len(prompts)} prompts came; send at most {MOST_PROMPTS}")
    if not prompts or "" in prompts or [] in prompts:
        raise wrong("the prompt is empty; there is nothing to continue")
    return tuple(map(_prompt, prompts))


def _is_token(value: object) -> bool:
    return type(value) is int and value >= 0


def _prompt(given: object) -> str | tuple[int, ...]:
    if isinstance(given, str):
        return valid_unicode(given)
    if isinstance(given, list) and len(given) <= MOST_TOKENS and all(map(_is_token, given)):
        return tuple(given)
    raise wrong("a prompt is a text or a list of token ids, which are whole numbers from 0")


_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_ONE = {"anyOf": [{"type": "string", "minLength": 1}, _IDS]}
Prompts = Annotated[
    Any,
    BeforeValidator(_prompts),
    described(
        anyOf=[_ONE, {"type": "array", "items": _ONE, "minItems": 1, "maxItems": MOST_PROMPTS}]
    ),
]
"""A tuple of texts and of tuples of token ids."""


class CompletionBody(RequestBody):
    """Texts that the model continues as they are."""

    refused, prompt_field = _REFUSED_OF_TEXT, "prompt"

    prompt: Prompts
    max_tokens: Annotated[int, Field(ge=-1, lt=2**31)] | None = USUAL_TOKENS
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None  # the prompt comes before the answer

    @model_validator(mode="after")
    def _say_something(self) -> Self:
        if self.max_tokens == 0 and not self.echo:
            raise wrong("ask for at least 1, or for the prompt alone with echo", "max_tokens")
        return self

    @property
    @override
    def chat_request(self) -> ChatRequest:
        """The request for the assistant; one token is made where only the prompt is wanted."""
        return self.chat_requests[0]

    @property
    @override
    def chat_requests(self) -> tuple[ChatRequest, ...]:
        most = USUAL_TOKENS if self.max_tokens is None else max(self.max_tokens, 1)
        own: dict[str, Any] = {
            "max_tokens": None if self.max_tokens == -1 else most,
            "logprobs": self.logprobs,
            "echo": bool(self.echo),
        }
        return tuple(
            self._request(text=prompt, **own)
            if isinstance(prompt, str)
            else self._request(tokens=prompt, **own)
            for prompt in self.prompt
        )
