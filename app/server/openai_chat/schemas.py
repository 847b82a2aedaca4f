"""The bodies of requests: what is taken, what is refused, and the Turn that one stands for."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import override

from app.errors import UnknownDrafter
from app.reasoning_effort import AS_TAUGHT, Thinking
from app.request import ChatRequest, Message, ToolUse, check_drafter
from app.server.text_schemas import Text, Thought, valid_unicode
from app.server.tool_schemas import Calls, ToolChoice, Tools, checked_json, tool_use
from app.text.formats.gbnf import gbnf_grammar
from app.text.formats.json_schema import schema_grammar
from engine.errors import InvalidRequest
from engine.grammar.rules import Grammar
from engine.request import AUTO, Penalties, SamplingParams

_OLD_TOOLS = "this is the older name of tools; send tools and tool_choice"
_ONE_FORM = (
    "an answer in a format calls no tools; leave out one of the two, or set tool_choice to none"
)
_ONE_GRAMMAR = "an answer has one format; leave out the grammar, or response_format and json_schema"
_NO_CHOICE = "the server does not choose among answers; send n to get several"
_TEXT_ONLY = "this endpoint reads and writes text only"

MOST_CHOICES = 16
SEEDS = 2**63  # behind the last one the first follows
# name -> (values that change nothing, why any other is refused); null never changes anything
REFUSED: Mapping[str, tuple[tuple[object, ...], str]] = {
    "best_of": ((1,), _NO_CHOICE),
    "functions": (([],), _OLD_TOOLS),
    "function_call": (("none", "auto"), _OLD_TOOLS),
    "modalities": ((["text"],), _TEXT_ONLY),
    "audio": ((), _TEXT_ONLY),
}


def _changes_something(value: object, harmless: tuple[object, ...]) -> bool:
    same = (type(value) is type(nothing) and value == nothing for nothing in harmless)
    return value is not None and not any(same)


def _as_list(stop: object) -> object:
    return [stop] if isinstance(stop, str) else stop


StopText = Annotated[
    str, BeforeValidator(valid_unicode), StringConstraints(min_length=1, max_length=256)
]
Stop = Annotated[list[StopText], BeforeValidator(_as_list), Field(max_length=4)]
TokenId = Annotated[str, StringConstraints(pattern="^[0-9]{1,9}$")]  # JSON has no other keys
Bias = Annotated[float, Field(ge=-100, le=100)]
Count = Annotated[int, Field(ge=1, lt=2**31)]


class ChatMessage(BaseModel):
    """One message; ``developer`` is the newer name of ``system``."""

    model_config = ConfigDict(strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text = ""
    tool_calls: Calls | None = None
    tool_call_id: Text = ""
    reasoning_content: Thought = ""
    reasoning: Thought = ""  # as some programs call it

    @property
    def message(self) -> Message:
        """The same message as the assistant takes it."""
        calls = tuple(spec.call for spec in self.tool_calls or ())
        role = "system" if self.role == "developer" else self.role
        thought = self.reasoning_content or self.reasoning
        return Message(role, self.content, calls, self.tool_call_id, thought)


class Prediction(BaseModel):
    """A text that the answer may resemble, such as the file that is to be changed."""

    model_config = ConfigDict(strict=True)

    type: Literal["content"]
    content: Text


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_THINKING: Mapping[Effort, Thinking] = {
    "none": "off", "minimal": "low", "low": "low", "medium": "medium", "high": "high",
    "xhigh": "high", "max": "high",
}  # fmt: skip


def thinking_of(effort: Effort | None) -> Thinking:
    """OpenAI's words for it, of which templates know the middle ones."""
    return AS_TAUGHT if effort is None else _THINKING[effort]


class StreamOptions(BaseModel):
    """What a stream carries besides the text."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class SchemaFormat(BaseModel):
    """A schema as OpenAI's clients send it, with a name."""

    model_config = ConfigDict(strict=True)

    rules: dict[str, Any] | None = Field(default=None, alias="schema")


class ResponseFormat(BaseModel):
    """What the answer may look like; ``schema`` beside the type is how llama-server takes it."""

    model_config = ConfigDict(strict=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None
    rules: dict[str, Any] | None = Field(default=None, alias="schema")

    @property
    def wanted(self) -> Mapping[str, Any] | None:
        """The schema; of no schema any object, of plain text None."""
        if self.type == "text":
            return None
        told = self.rules if self.json_schema is None else self.json_schema.rules
        return {"type": "object"} if told is None else told


class RequestBody(BaseModel):
    """What every request for an answer may say; unknown fields are ignored.

    Known ones that cannot be served are refused. A request without a temperature is greedy, so it
    gets the same answer every time.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    refused: ClassVar[Mapping[str, tuple[tuple[object, ...], str]]] = REFUSED
    filling: ClassVar[str]  # the field that is too long where the context is too short

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, lt=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repeat_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = (
        None  # as llama-server calls it
    )
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None  # as vLLM does
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=1024)] | None = None
    max_tokens: Count | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stop: Stop | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    drafter: str = AUTO
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None  # as llama-server calls it
    grammar: Annotated[str, BeforeValidator(valid_unicode)] | None = None  # GBNF, as there
    _grammar: Grammar | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, body: Any) -> Any:
        for name, (harmless, reason) in cls.refused.items():
            if isinstance(body, dict) and _changes_something(body.get(name), harmless):
                raise PydanticCustomError(
                    "unsupported", "{reason}", {"reason": reason, "param": name}
                )
        return body

    @field_validator("drafter")
    @classmethod
    def _be_known(cls, name: str) -> str:
        try:
            check_drafter(name)
        except UnknownDrafter as error:
            raise PydanticCustomError("drafter", "{said}", {"said": str(error)}) from error
        return name

    @model_validator(mode="after")
    def _hold_format(self) -> Self:
        """The engine's grammar is made here, so that what it refuses is told as a wrong field."""
        param, schema = self._format()
        try:
            self._grammar = self._held(schema)
        except InvalidRequest as error:
            context = {"said": str(error), "param": "grammar" if self.grammar else param}
            raise PydanticCustomError("format", "{said}", context) from error
        return self

    def _format(self) -> tuple[str, Mapping[str, Any] | None]:
        """The schema that is asked for, and the field that has it."""
        told = None if self.response_format is None else self.response_format.wanted
        return ("json_schema", self.json_schema) if told is None else ("response_format", told)

    def _held(self, schema: Mapping[str, Any] | None) -> Grammar | None:
        if schema is None:
            return gbnf_grammar(self.grammar) if self.grammar else None
        if self.grammar:
            raise InvalidRequest(_ONE_GRAMMAR)
        return schema_grammar(schema)

    @property
    @abstractmethod
    def turn(self) -> ChatRequest:
        """What the assistant is asked for one answer."""

    @property
    def turns(self) -> list[ChatRequest]:
        """One for each choice; with a seed the first has it, and the others those that follow it."""
        turn, seed = self.turn, self.seed
        found = [turn] * (self.n or 1)
        if seed is None:
            return found
        return [
            turn
            if at == 0
            else replace(turn, sampling=replace(turn.sampling, seed=(seed + at) % SEEDS))
            for at in range(len(found))
        ]

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def sampling(self) -> SamplingParams:
        """The engine's sampling; a field that was left out keeps the engine's default."""
        names = ("temperature", "top_k", "top_p", "min_p", "seed")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return SamplingParams(**given, penalties=self._penalties)

    @property
    def _penalties(self) -> Penalties | None:
        """None where they would change nothing."""
        asked = Penalties(
            presence=self.presence_penalty or 0.0,
            frequency=self.frequency_penalty or 0.0,
            repeat=self.repeat_penalty or self.repetition_penalty or 1.0,
            bias=tuple((int(token), value) for token, value in (self.logit_bias or {}).items()),
        )
        return None if asked == Penalties() else asked


class Calling(RequestBody):
    """What a request says whose answer may call tools."""

    _use: ToolUse | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _offer_tools(self) -> Self:
        self._use = self._offered()
        if self._use and self._grammar:
            context = {"reason": _ONE_FORM, "param": "tools"}
            raise PydanticCustomError("unsupported", "{reason}", context)
        return self

    @abstractmethod
    def _offered(self) -> ToolUse | None:
        """Its tools; raises PydanticCustomError."""

    @property
    def use(self) -> ToolUse | None:
        """The tools that the answer may call, if any."""
        return self._use


class ChatBody(Calling):
    """A chat request."""

    filling = "messages"

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
            raise PydanticCustomError(
                "empty", "the last message is empty; there is nothing to answer"
            )
        return messages

    @field_validator("prediction", mode="before")
    @classmethod
    def _look_like_one(cls, prediction: object) -> object:
        if prediction is not None and not isinstance(prediction, dict):
            raise PydanticCustomError(
                "prediction", 'a prediction must look like {"type": "content", "content": "..."}'
            )
        return prediction

    @field_validator("top_logprobs")
    @classmethod
    def _go_with_logprobs(cls, many: int | None, info: ValidationInfo) -> int | None:
        if many and not info.data.get("logprobs"):
            raise PydanticCustomError(
                "logprobs", "set logprobs to true to get likeliest tokens, too"
            )
        return many

    @model_validator(mode="after")
    def _go_on_with_an_answer(self) -> Self:
        last = self.messages[-1]
        begun = len(self.messages) > 1 and last.role == "assistant" and not last.tool_calls
        if self.continue_final_message and not begun:
            raise PydanticCustomError(
                "begun",
                "the last message must be the beginning of an answer",
                {"param": "continue_final_message"},
            )
        return self

    @override
    def _offered(self) -> ToolUse | None:
        parallel = self.parallel_tool_calls is not False
        return tool_use(self.tools, self.tool_choice, parallel=parallel)

    @property
    @override
    def turn(self) -> ChatRequest:
        """What the assistant is asked; the newer of the two token limits wins."""
        messages = [entry.message for entry in self.messages]
        begun = messages.pop().content if self.continue_final_message else ""
        return ChatRequest(
            messages=tuple(messages),
            begun=begun,
            sampling=self.sampling,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            stop=tuple(self.stop or ()),
            drafter=self.drafter,
            grammar=self._grammar,
            use=self.use,
            prediction="" if self.prediction is None else self.prediction.content,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            thinking=thinking_of(self.reasoning_effort),
            variables=self.chat_template_kwargs or {},
        )
