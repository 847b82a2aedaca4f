"""A chat request and what answers it: plain frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.errors import UnknownDrafter
from engine.drafters import DRAFTERS, describe
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar
from engine.request import (
    AUTO,
    FinishReason,
    Logprob,
    Penalties,
    SamplingParams,
    Stats,
    tokens_per_pass,
)

ROLES = ("system", "user", "assistant", "tool")
ALL_DRAFTERS = "all"
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat")  # what a model may recommend
AGAIN, MILD = 0.7, 0.6  # temperature of another answer, and below which the usual one hardly varies
SEEDS = 2**63  # after the last seed comes the first

Thinking = Literal["", "off", "on", "low", "medium", "high"]
AS_TAUGHT: Thinking = ""  # the default of the model's chat template
THINKING: tuple[Thinking, ...] = ("off", "on", "low", "medium", "high")
_EFFORTS = ("low", "medium", "high")


def variables_for(thinking: Thinking) -> Mapping[str, Any]:
    """The template variables that ask for this much reasoning, under every name that templates use."""
    if thinking == AS_TAUGHT:
        return {}
    thinks = thinking != "off"
    variables: dict[str, Any] = {"enable_thinking": thinks, "thinking": thinks}
    if thinking in _EFFORTS:
        variables["reasoning_effort"] = thinking
    return variables if thinks else {**variables, "thinking_budget": 0}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in an earlier answer."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; ``role`` is one of ``ROLES``."""

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()  # of an assistant
    answers: str = ""  # of a tool: the id of the call that this result answers
    reasoning: str = ""  # of an assistant, before ``content``

    @property
    def says_nothing(self) -> bool:
        """Whether it has no text, no thought and no call."""
        return not (self.content.strip() or self.calls or self.reasoning)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a program offers; ``parameters`` is a JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    strict: bool = False  # refuse a schema that no grammar can enforce, instead of relaxing it

    @property
    def described(self) -> dict[str, Any]:
        """The tool as templates read it and programs send it."""
        parameters = dict(self.parameters) or {"type": "object", "properties": {}}
        about = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": about}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a request, and which of them the answer may or must call."""

    tools: tuple[Tool, ...]
    must_call: bool = False
    only: str = ""  # the name of the one tool that must be called, once
    parallel: bool = True  # several calls in one answer
    otherwise: Grammar | None = None  # the form of an answer that calls none of them

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that the answer may call."""
        return tuple(tool for tool in self.tools if self.only in ("", tool.name))


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to answer, or a plain text to continue.

    ``max_tokens`` None means all that is left of the context.
    """

    messages: tuple[Message, ...]  # empty where there is a text
    model: str = ""  # what answers; empty: what is loaded
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()  # texts that end the answer and are not part of it
    drafter: str = "auto"
    conversation: str | None = None  # requests of one conversation reuse its cached prefix
    prediction: str = ""  # a text that the answer may resemble: drafted from, never read
    logprobs: int | None = None  # report log probabilities, also of this many likeliest tokens
    text: str = ""  # instead of messages: continued as it is, without a template
    tokens: tuple[int, ...] = ()  # instead of a text: the same as token ids
    echo: bool = False  # also report the log probabilities of the text that is continued
    prefix: str = ""  # the answer starts with this; only the rest is generated
    grammar: Grammar | None = None  # the form of the answer
    schema: Mapping[str, Any] | None = field(default=None, hash=False)  # that it was made of
    gbnf: str = ""  # or this
    tool_use: ToolUse | None = None
    thinking: Thinking = AS_TAUGHT
    variables: Mapping[str, Any] = field(default_factory=dict)  # more template variables
    unset: frozenset[str] = frozenset()  # of ``SAMPLING``: the model's own values count

    @property
    def continues(self) -> bool:
        """Whether a text is continued, and no conversation answered."""
        return bool(self.text or self.tokens)

    @property
    def conversation_or_text(self) -> tuple[Message, ...]:
        """The messages; a text counts as one message of the user."""
        return (Message("user", self.text),) if self.continues else self.messages

    def choice(self, index: int) -> "ChatRequest":
        """The request for one of several choices: a seed grows by one from choice to choice."""
        seed = self.sampling.seed
        if index == 0 or seed is None:
            return self
        return replace(self, sampling=replace(self.sampling, seed=(seed + index) % SEEDS))


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How an answer of a stored conversation is generated."""

    temperature: float = 0.0
    max_tokens: int | None = None
    drafter: str = "auto"
    seed: int | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat: float = 1.0  # penalty; 1 is off
    thinking: Thinking = AS_TAUGHT
    unset: frozenset[str] = frozenset()  # of ``SAMPLING``: the model's own values count

    def another(self, own: Mapping[str, float], versions: int) -> "ReplyOptions":
        """For another answer than the ``versions`` that there are, of a model with its ``own`` sampling.

        Sampled where the default is greedy or nearly so, with a seed of its own where there is one. A
        temperature of 0 that a person set stays.
        """
        if self.seed is not None:
            return replace(self, seed=(self.seed + versions) % SEEDS)
        if "temperature" in self.unset and own.get("temperature", 0.0) < MILD:
            return replace(self, unset=self.unset - {"temperature"}, temperature=AGAIN)
        return self

    @property
    def sampling(self) -> SamplingParams:
        """The same options for the engine."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            penalties=None if self.repeat == 1 else Penalties(repeat=self.repeat),
        )


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The next part of a tool call; the first part has the name and the id."""

    index: int
    arguments: str  # JSON; joined parts are the whole
    name: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """What a pass of the model added to an answer, or several one after the other.

    Texts may be empty while a character, a mark or a stop text is incomplete.
    """

    reasoning: str = ""
    text: str = ""
    calls: tuple[CallDelta, ...] = ()
    tagged: str = ""  # reasoning, text and calls as the one text that is stored and shown
    token_ids: tuple[int, ...] = ()
    drafted: int = 0
    accepted: int = 0
    logprobs: tuple[Logprob, ...] = ()  # per token; only when requested
    echo: tuple[Logprob, ...] = ()  # of the prompt's tokens but the first; only when requested

    def parts(self) -> tuple[bool, bool, bool]:
        """Whether it adds reasoning, text, calls, which come in this order."""
        return bool(self.reasoning), bool(self.text), bool(self.calls)


def combined(deltas: Sequence[Delta]) -> Delta:
    """What several passes added, one after the other; all have the same ``parts``."""
    if len(deltas) == 1:
        return deltas[0]
    return Delta(
        "".join(one.reasoning for one in deltas),
        "".join(one.text for one in deltas),
        tuple(call for one in deltas for call in one.calls),
        "".join(one.tagged for one in deltas),
        tuple(token for one in deltas for token in one.token_ids),
        sum(one.drafted for one in deltas),
        sum(one.accepted for one in deltas),
        tuple(each for one in deltas for each in one.logprobs),
        tuple(each for one in deltas for each in one.echo),
    )


@dataclass(frozen=True, slots=True)
class PredictionUsage:
    """How many tokens of a prediction the answer has, in their order, and how many it has not."""

    accepted: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Completion:
    """The whole answer, always last and exactly once; ``error`` is set when it broke off.

    ``code`` then names the kind of error for programs, where the engine knew it.
    """

    text: str  # tagged, as in ``Delta``
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats
    error: str | None = None
    first_token_seconds: float | None = None  # from the request on, waiting included
    spans: tuple[tuple[int, int], ...] = ()  # characters [start, end) that were drafted
    code: str | None = None
    prediction: PredictionUsage | None = None  # where the request had a prediction
    logprobs: tuple[Logprob, ...] = ()  # per token; only when requested
    stopped_by: str = ""  # the stop text that ended the answer
    reasoning_tokens: int = 0
    calls: int = 0  # whole tool calls

    @property
    def seconds(self) -> float:
        """Wall time inside the engine, the prompt included."""
        return self.stats.prompt_seconds + self.stats.decode_seconds

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens per second of decoding; 0 when nothing was timed."""
        seconds = self.stats.decode_seconds
        return self.stats.emitted / seconds if seconds > 0 else 0.0

    @property
    def speedup(self) -> float | None:
        """Over plain decoding for the same tokens, by measured cost; None when nothing was timed."""
        seconds = sum(run.seconds for run in self.stats.runs)
        plain = sum(run.plain_seconds for run in self.stats.runs)
        return plain / seconds if seconds > 0 and plain > 0 else None

    @property
    def tokens_per_pass(self) -> float:
        """Tokens for each pass of the target; 0 when none ran."""
        return tokens_per_pass(self.stats.passes, self.stats.accepted, self.stats.emitted)


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """An answer so far."""

    text: str = ""
    tokens: int = 0
    spans: tuple[tuple[int, int], ...] = ()  # as in Completion


AnswerEvent = Delta | Completion


def check_request(request: ChatRequest) -> None:
    """Refuse what no model could answer; raises InvalidRequest, UnknownDrafter."""
    messages = request.conversation_or_text
    last = messages[-1] if messages else Message("user", "")
    if not (request.continues or last.content.strip() or last.calls or last.role == "tool"):
        raise InvalidRequest("the prompt is empty; write something to answer")
    for message in messages:
        if message.role not in ROLES:
            raise InvalidRequest(f"there is no role {message.role!r}; use {', '.join(ROLES)}")
        check_text(message.content, "a message")
        check_text(message.reasoning, "the reasoning of a message")
    for stop in request.stop:
        if not stop:
            raise InvalidRequest("a stop text is empty; leave it out, or give it a character")
        check_text(stop, "a stop text")
    check_text(request.prediction, "the prediction")
    check_text(request.prefix, "the start of the answer")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}; ask for at least 1")
    request.sampling.check()
    check_drafter(request.drafter)


def check_text(text: str, what: str) -> None:
    """Refuse half a character (a lone surrogate), which no tokenizer and no database can take."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{what} holds half a character (U+{ord(text[error.start]):04X}) at position "
            f"{error.start}; send valid Unicode text"
        ) from error


def check_drafter(name: str) -> None:
    """Refuse a drafter that does not exist; whether it can run is decided by the engine."""
    if name not in DRAFTERS:
        known = [one for one in DRAFTERS if describe(one).listed]
        raise UnknownDrafter(name, tuple(dict.fromkeys((AUTO, *known))))
