"""What answers: a model of this machine or one of another engine, and a request that it has checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from app.chat.reply import RunningReply
from app.chat.stored_answer import AnswerSink
from app.history.records import Conditions
from app.models.catalog import CatalogEntry
from app.observable import Observable
from app.request import ChatRequest, Message, PartialAnswer, Thinking
from engine.request import ModelFacts, Prior


@dataclass(frozen=True, slots=True)
class ContextUse:
    """How much of the context a conversation takes, and how many of its oldest messages are left out."""

    used: int
    unseen: int


class ModelText(Protocol):
    """What is known of a model's template and tokens."""

    @property
    def chats(self) -> bool:
        """Whether it answers conversations, and does not only continue texts."""
        ...

    @property
    def borrows(self) -> bool:
        """Whether its chat template is not its own."""
        ...

    @property
    def own_sampling(self) -> Mapping[str, float]:
        """The sampling that it recommends."""
        ...

    @property
    def thinking(self) -> Sequence[Thinking]:
        """Reasoning efforts that it supports."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...


class Prepared(Protocol):
    """A request that a model can take."""

    @property
    def chat(self) -> ChatRequest:
        """What was asked."""
        ...

    @property
    def conditions(self) -> Conditions:
        """What its measurements are filed under."""
        ...

    @property
    def freed(self) -> tuple[str, ...]:
        """What its schemas limit and its grammar does not, in words."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, those that may be cached included; 0 where they are not known yet."""
        ...

    @property
    def first_tokens(self) -> tuple[int, ...]:
        """The first token of the prompt, where its tokens are known here."""
        ...

    def choice(self, index: int) -> Self:
        """The same prompt with the seed of one of several choices."""
        ...

    def with_priors(self, priors: tuple[Prior, ...]) -> Self:
        """The same with what earlier answers measured."""
        ...

    def start(self, sink: AnswerSink, news: Observable | None = None) -> RunningReply:
        """Begin to answer; ``news`` as in ``RunningReply``."""
        ...


class AnsweringModel(Protocol):
    """One model that can answer."""

    @property
    def entry(self) -> CatalogEntry:
        """As it is listed."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """Its context, and what can draft for it."""
        ...

    @property
    def text(self) -> ModelText:
        """What is known of its template and tokens."""
        ...

    @property
    def template(self) -> str:
        """The chat template that it borrows, if any."""
        ...

    def prepare(self, chat: ChatRequest, continued: PartialAnswer | None = None) -> Prepared:
        """Check a request, once for any number of choices.

        Raises InvalidRequest, UnknownDrafter, ContextOverflow.
        """
        ...

    async def prompt_tokens(self, chat: ChatRequest) -> int:
        """Tokens of the prompt, even where the context is too short; raises InvalidRequest."""
        ...

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """The messages that fit the context."""
        ...

    def context_use(self, messages: Sequence[Message]) -> ContextUse:
        """How much of the context these take, and how many are left out."""
        ...
