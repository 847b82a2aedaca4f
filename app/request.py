"""What is asked of the assistant and what comes back: plain frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.errors import UnknownDrafter
from app.reasoning_effort import AS_TAUGHT, Thinking
from engine.drafters import DRAFTERS, describe
from engine.errors import InvalidRequest
from engine.grammar.rules import Grammar
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


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function that an earlier answer made."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; ``role`` is system, user, assistant or tool."""

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()  # of an assistant
    answers: str = ""  # the id of the call whose result a tool tells
    thought: str = ""  # of an assistant, before it said this; templates tell it as they were taught


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a program offers; ``parameters`` is a JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False  # refuse what of the schema cannot be held, rather than pass over it

    @property
    def described(self) -> dict[str, Any]:
        """As templates see it, and programs send it."""
        parameters = dict(self.parameters) or {"type": "object", "properties": {}}
        about = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": about}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a turn, and which of them its answer may or must call."""

    tools: tuple[Tool, ...]
    must_call: bool = False  # an answer without a call is no answer
    only: str = ""  # the name of the one that is to be called, once
    parallel: bool = True  # several calls in one answer

    @property
    def callable(self) -> tuple[Tool, ...]:
        """Those that the answer may call."""
        return tuple(tool for tool in self.tools if self.only in ("", tool.name))


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A whole conversation to answer, or a text to go on with as it stands.

    ``max_tokens`` None is what is left of the context.
    """

    messages: tuple[Message, ...]  # none where there is a text
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()  # texts that end the answer; never part of it
    drafter: str = "auto"
    session: str | None = None  # same session: the cached prefix is reused
    prediction: str = ""  # a text that the answer may resemble: drafted from, never read
    logprobs: int | None = None  # also report log probabilities, of this many likeliest tokens, too
    text: str = ""  # in place of messages: no template is put around it
    begun: str = ""  # what the answer to the messages begins with; what comes is the rest
    grammar: Grammar | None = None  # what the answer may look like
    use: ToolUse | None = None  # tools that the answer may call
    thinking: Thinking = AS_TAUGHT
    variables: Mapping[str, Any] = field(default_factory=dict)  # more of the chat template's

    @property
    def asked(self) -> tuple[Message, ...]:
        """What the class of the task is told by: a text as if somebody had said it."""
        return (Message("user", self.text),) if self.text else self.messages


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
    repeat: float = 1.0  # penalty; 1: none
    thinking: Thinking = AS_TAUGHT

    @property
    def sampling(self) -> SamplingParams:
        """The same options as the engine takes them."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            penalties=None if self.repeat == 1 else Penalties(repeat=self.repeat),
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """The next part of an answer; ``text`` may be empty while a character or stop text is open."""

    text: str
    token_ids: tuple[int, ...]
    drafted: int
    accepted: int
    logprobs: tuple[Logprob, ...] = ()  # per token; only when asked for


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

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats
    error: str | None = None
    first_token_seconds: float | None = None  # from the question on, waiting included
    spans: tuple[tuple[int, int], ...] = ()  # characters [start, end) that were drafted
    code: str | None = None
    foretold: PredictionUsage | None = None  # where the turn had a prediction
    logprobs: tuple[Logprob, ...] = ()  # per token; only when asked for
    stopped_by: str = ""  # the stop text that ended the answer
    thought_tokens: int = 0  # of the tokens, those of the thought that the answer begins with

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
        """How far one pass of the target went; 0 when none ran."""
        return tokens_per_pass(self.stats.passes, self.stats.accepted, self.stats.emitted)


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """What there is of an answer so far."""

    text: str = ""
    tokens: int = 0
    spans: tuple[tuple[int, int], ...] = ()  # as in Report
    thought: str = ""  # that the prompt opens already: told with the first words that come


Delta = Piece | Completion


def check_request(turn: ChatRequest) -> None:
    """Refuse, before any engine is asked, what no model could answer; raises InvalidRequest."""
    said = turn.asked
    if not said or not (turn.text or said[-1].content.strip() or said[-1].role == "tool"):
        raise InvalidRequest("the prompt is empty; write something to answer")
    for message in said:
        if message.role not in ROLES:
            raise InvalidRequest(f"there is no role {message.role!r}; use {', '.join(ROLES)}")
        check_text(message.content, "a message")
        check_text(message.thought, "a thought")
    for stop in turn.stop:
        if not stop:
            raise InvalidRequest("a stop text is empty; leave it out, or give it a character")
        check_text(stop, "a stop text")
    check_text(turn.prediction, "the prediction")
    check_text(turn.begun, "the begun answer")
    if turn.begun and (turn.grammar is not None or turn.use is not None):
        raise InvalidRequest(
            "an answer that is begun takes no format and calls no tools; leave out one of the two"
        )
    if turn.max_tokens is not None and turn.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {turn.max_tokens}; ask for at least 1")
    turn.sampling.check()
    check_drafter(turn.drafter)


def check_text(text: str, what: str) -> None:
    """Refuse halves of characters, which no tokenizer and no database can take."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{what} holds half a character (U+{ord(text[error.start]):04X}) at position "
            f"{error.start}; send valid Unicode text"
        ) from error


def check_drafter(name: str) -> None:
    """Refuse a drafter that does not exist; whether it can run is the engine's to say."""
    if name not in DRAFTERS:
        known = [one for one in DRAFTERS if describe(one).listed]
        raise UnknownDrafter(name, tuple(dict.fromkeys((AUTO, *known))))
