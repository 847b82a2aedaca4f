"""What every request for an answer may contain: its fields, their ranges, what is refused."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from app.errors import UnknownDrafter
from app.request import AS_TAUGHT, SEEDS, ChatRequest, Message, Thinking, ToolUse, check_drafter
from app.server.foreign import without_foreign
from app.server.text_schemas import Strict, unsupported, valid_unicode, wrong
from app.server.tool_schemas import CUSTOM, FUNCTION
from app.text.formats.gbnf import gbnf_grammar
from app.text.formats.json_schema import schema_grammar
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar
from engine.request import AUTO, RANGES, Penalties, SamplingParams

_OLD_TOOLS = "this is the older name of tools; send tools and tool_choice"
_NO_CALL = (
    "a grammar holds the whole answer, so no call can be required; leave out one of the two, or set "
    "tool_choice to auto"
)
_ONE_GRAMMAR = "an answer has one format; leave out the grammar, or response_format and json_schema"
_OTHER_FORMAT = (
    "this server does not know this name of a format; send response_format, or grammar (GBNF)"
)
_NO_CHOICE = "the server does not choose among answers; send n to get several"
_TEXT_ONLY = "this endpoint reads and writes text only"

MOST_CHOICES = 16
MOST_MESSAGES = 20_000  # of a request; the context is full long before
ONLY_THE_LIKELIEST = 1e-6  # a share of probability so small that one token has it
EntryT = TypeVar("EntryT")  # messages, and what stands for some
Refusals = Mapping[str, tuple[tuple[object, ...], str]]
"""Name -> (values that change nothing, why any other is refused); null never changes anything."""
REFUSED: Refusals = {
    "best_of": ((1,), _NO_CHOICE),
    "functions": (([],), _OLD_TOOLS),
    "function_call": (("none", "auto"), _OLD_TOOLS),
    "modalities": ((["text"],), _TEXT_ONLY),
    "audio": ((), _TEXT_ONLY),
    **dict.fromkeys(
        ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
        ((), _OTHER_FORMAT),
    ),
}


def _changes_something(value: object, harmless: tuple[object, ...]) -> bool:
    same = (type(value) is type(nothing) and value == nothing for nothing in harmless)
    return value is not None and not any(same)


def _as_list(stop: object) -> object:
    """A list of texts; an empty one never ends an answer."""
    stops = [stop] if isinstance(stop, str) else stop
    return [one for one in stops if one != ""] if isinstance(stops, list) else stops


def _instead_of(number: float, meant: float | None) -> BeforeValidator:
    """Takes a number that other servers understand for what the engine means by ``meant``."""
    return BeforeValidator(
        lambda given: meant if type(given) in (int, float) and given == number else given
    )


def _seed(given: object) -> object:
    """-1 asks for any seed; numbers that are no seed of the engine stand for one."""
    if type(given) is not int:
        return given
    return None if given == -1 else given % SEEDS


def _whole(value: object) -> object:
    """Some languages write whole numbers as 6.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _by_token(biases: object) -> object:
    """Pairs, as llama-server takes them, by their tokens; false is for never."""
    if not isinstance(biases, list):
        return biases
    pairs = [pair for pair in biases if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) < len(biases):
        return biases
    lowest = RANGES["bias"].low
    return {str(token): lowest if bias is False else bias for token, bias in pairs}


def _within(name: str) -> Any:
    """A field with a range of the engine's table."""
    found = RANGES[name]
    return Field(
        gt=found.low if found.above_low else None,
        ge=None if found.above_low else found.low,
        lt=found.high if found.below_high else None,
        le=None if found.below_high else found.high,
    )


Bias = Annotated[float, _within("bias")]
StopText = Annotated[
    str, BeforeValidator(valid_unicode), StringConstraints(min_length=1, max_length=4096)
]
Stop = Annotated[list[StopText], BeforeValidator(_as_list)]
TokenId = Annotated[str, StringConstraints(pattern="^[0-9]{1,9}$")]  # JSON has no other keys
Biases = Annotated[dict[TokenId, Bias], Field(max_length=1024)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Limit = Annotated[Count | None, _instead_of(-1, None)]
"""Of tokens; -1 and null mean all that is left of the context."""
LimitOrNothing = Annotated[Annotated[int, Field(ge=0, lt=2**31)] | None, _instead_of(-1, None)]
"""The same, where 0 asks for the prompt to be read and nothing to be said."""


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_THINKING: Mapping[Effort, Thinking] = {
    "none": "off", "minimal": "low", "low": "low", "medium": "medium", "high": "high",
    "xhigh": "high", "max": "high",
}  # fmt: skip


def thinking_of(effort: Effort | None) -> Thinking:
    """OpenAI's words for it, of which templates know the middle ones."""
    return AS_TAUGHT if effort is None else _THINKING[effort]


def without_empty_end(entries: Sequence[EntryT]) -> tuple[EntryT, ...]:
    """Without what says nothing at the end of it: the place for the next answer, a question all in the instructions."""
    length = len(entries)
    while length > 1 and _says_nothing(entries[length - 1], entries[length - 2]):
        length -= 1
    return (*entries[:length],)


def _says_nothing(entry: object, before: object) -> bool:
    if not (isinstance(entry, Message) and entry.says_nothing):
        return False
    instructed = isinstance(before, Message) and before.role == "system"
    return entry.role == "assistant" or (entry.role == "user" and instructed)


class StreamOptions(Strict):
    """What a stream contains except the text."""

    include_usage: bool | None = None


_ABOUT = {"name", "description", "strict"}  # words that come with a schema


class SchemaFormat(Strict):
    """A schema as OpenAI's clients send it, with a name."""

    rules: dict[str, Any] | None = Field(default=None, alias="schema")


class ResponseFormat(Strict):
    """What the answer may look like; ``schema`` next to the type is how llama-server takes it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None
    name: str | None = None  # this one and the next are sent back
    strict: bool | None = None
    rules: dict[str, Any] | None = Field(default=None, alias="schema")

    @model_validator(mode="before")
    @classmethod
    def _in_its_place(cls, form: Any) -> Any:
        """A schema that was sent where its name and itself belong."""
        match form:
            case {"json_schema": dict(own)} if "schema" not in own and not own.keys() <= _ABOUT:
                rules = {word: value for word, value in own.items() if word not in _ABOUT}
                return {**form, "json_schema": {"schema": rules}}
            case _:
                return form

    @property
    def wanted(self) -> Mapping[str, Any] | None:
        """The schema; of no schema any object, of plain text None."""
        if self.type == "text":
            return None
        schema = self.rules if self.json_schema is None else self.json_schema.rules
        return {"type": "object"} if schema is None else schema


class TextOptions(Strict):
    """What the answer may look like, where a protocol puts the format among other options."""

    format: ResponseFormat | None = None

    @property
    def wanted(self) -> Mapping[str, Any] | None:
        """The schema, if any."""
        return None if self.format is None else self.format.wanted


class RequestBody(Strict):
    """What every request for an answer may say; unknown fields are ignored.

    Known ones that cannot be served are refused. A request without a temperature is greedy, so it
    gets the same answer every time.
    """

    model_config = ConfigDict(allow_inf_nan=False)
    refused: ClassVar[Refusals] = REFUSED
    own_tools: ClassVar[tuple[str, ...]] = (FUNCTION, CUSTOM)  # types of tools that clients run
    own_items: ClassVar[tuple[str, ...]] = ()  # types of items of a conversation that are read
    prompt_field: ClassVar[str]  # the field that is too long where the context is too short

    model: Annotated[str, BeforeValidator(lambda given: given or "")] = ""  # the loaded one
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None  # OpenAI's range
    top_p: Annotated[float, _within("top_p"), _instead_of(0, ONLY_THE_LIKELIEST)] | None = None
    min_p: Annotated[float, _within("min_p"), _instead_of(1, 1 - ONLY_THE_LIKELIEST)] | None = None
    top_k: Annotated[int, _within("top_k"), _instead_of(-1, 0)] | None = None
    seed: Annotated[Annotated[int, Field(ge=0, lt=SEEDS)] | None, BeforeValidator(_seed)] = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None  # OpenAI's range
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None  # OpenAI's range
    repeat_penalty: Annotated[float, _within("repeat")] | None = None  # llama-server's name
    repetition_penalty: Annotated[float, _within("repeat")] | None = None  # vLLM's name
    logit_bias: Annotated[Biases | None, BeforeValidator(_by_token)] = None
    max_tokens: Limit = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stop: Stop | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    drafter: str = AUTO
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None  # as llama-server calls it
    grammar: Annotated[str, BeforeValidator(valid_unicode)] | None = None  # GBNF, as there
    skipped: SkipJsonSchema[tuple[str, ...]] = ()  # by this server: kinds that do not run here
    _grammar: Grammar | None = PrivateAttr(default=None)
    _tool_use: ToolUse | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, body: Any) -> Any:
        for name, (harmless, reason) in cls.refused.items():
            if isinstance(body, dict) and _changes_something(body.get(name), harmless):
                raise unsupported(reason, name)
        if not isinstance(body, dict):
            return body
        numbers = {name: _whole(value) for name, value in body.items()}
        if numbers.get("max_tokens") is None and "n_predict" in numbers:  # llama-server's name
            numbers["max_tokens"] = numbers["n_predict"]
        return without_foreign(cls._with_tools(numbers), cls.own_tools, cls.own_items)

    @classmethod
    def _with_tools(cls, body: dict[str, Any]) -> dict[str, Any]:
        """The body with all tools that clients run in the form of functions and custom tools."""
        return body

    @field_validator("drafter")
    @classmethod
    def _be_known(cls, name: str) -> str:
        try:
            check_drafter(name)
        except UnknownDrafter as error:
            raise wrong(str(error)) from error
        return name

    @model_validator(mode="after")
    def _hold_format(self) -> Self:
        """The engine's grammar is made here, so that a refusal names the field."""
        param, schema = self._format()
        try:
            self._grammar = self._held(schema)
        except InvalidRequest as error:
            raise wrong(str(error), "grammar" if self.grammar else param) from error
        return self

    @model_validator(mode="after")
    def _offer_tools(self) -> Self:
        """A format holds the answers that call nothing; a grammar holds all of them."""
        use = self._offered()
        if use and self._grammar and self.grammar and use.must_call:
            raise unsupported(_NO_CALL, "tools")
        if use and self._grammar and not self.grammar:
            form = None if use.must_call else self._grammar
            use, self._grammar = replace(use, otherwise=form), None
        self._tool_use = use
        return self

    def _offered(self) -> ToolUse | None:
        """The tools that the answer may call, if any; raises PydanticCustomError."""
        return None

    def _format(self) -> tuple[str, Mapping[str, Any] | None]:
        """The requested schema, and the field that has it."""
        schema = None if self.response_format is None else self.response_format.wanted
        return ("json_schema", self.json_schema) if schema is None else ("response_format", schema)

    def _held(self, schema: Mapping[str, Any] | None) -> Grammar | None:
        if schema is None:
            return gbnf_grammar(self.grammar) if self.grammar else None
        if self.grammar:
            raise InvalidRequest(_ONE_GRAMMAR)
        return schema_grammar(schema)

    @property
    @abstractmethod
    def chat_request(self) -> ChatRequest:
        """The request for the first answer."""

    @property
    def chat_requests(self) -> tuple[ChatRequest, ...]:
        """One for each prompt."""
        return (self.chat_request,)

    def too_long(self, needed: int, holds: int) -> str:
        """The sentence, in tokens, from which programs know that they have to shorten the prompt."""
        return (
            f"This model's maximum context length is {holds} tokens. However, your "
            f"{self.prompt_field} resulted in {needed} tokens (one is kept for the answer). Please "
            f"reduce the length of the {self.prompt_field}."
        )

    def _request(self, *messages: Message, **own: Any) -> ChatRequest:
        """The same with what every protocol says; ``own`` is more of it."""
        return ChatRequest(
            messages=messages,
            model=self.model,
            sampling=self.sampling,
            stop=tuple(self.stop or ()),
            drafter=self.drafter,
            grammar=self._grammar,
            schema=self._format()[1],
            gbnf=self.grammar or "",
            tool_use=self._tool_use,
            **own,
        )

    @property
    def choices(self) -> int:
        """How many answers are wanted."""
        return self.n or 1

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
        penalties = Penalties(
            presence=self.presence_penalty or 0.0,
            frequency=self.frequency_penalty or 0.0,
            repeat=self.repeat_penalty or self.repetition_penalty or 1.0,
            bias=tuple((int(token), value) for token, value in (self.logit_bias or {}).items()),
        )
        return None if penalties == Penalties() else penalties
