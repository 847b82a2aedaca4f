"""A model of another engine, as the assistant asks it: like a loaded one, without files and tokens."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from app.chat.answering_model import ContextUse
from app.chat.loaded_model import first_seen
from app.chat.remote.answer import Drafts, RemoteAnswer
from app.chat.remote.chunks import Listed, Words, metrics_of
from app.chat.remote.fields import Body, chat_body, check_fields, text_body
from app.chat.reply import RunningReply
from app.chat.stored_answer import AnswerSink
from app.errors import RemoteFailed
from app.history.records import Conditions
from app.history.task_class import task_class, temperature_class
from app.models.catalog import CatalogEntry
from app.observable import Observable
from app.remote_engine import RemoteEngine
from app.request import (
    THINKING,
    ChatRequest,
    Message,
    PartialAnswer,
    Thinking,
    check_request,
)
from engine.request import PLAIN, ModelFacts, Prior

if TYPE_CHECKING:
    from app.chat.remote.connection import Connection

_BYTES = 3.0  # of a token, about: rather too few, so that a conversation fits
_GBNF = ("llamacpp", "slipstream", "local")  # owners of models whose servers take grammars
_COUNTERS: Mapping[str, tuple[str, str, str]] = {  # owner -> drafted, accepted, passes
    "vllm": (
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "vllm:spec_decode_num_drafts_total",
    ),
}


def remote_entry(engine: RemoteEngine, listed: Listed) -> CatalogEntry:
    """A model of an engine among those of the catalogue."""
    return CatalogEntry(
        f"{engine.name}/{listed.id}",
        f"runs on {engine.name} ({engine.host})",
        None,
        remote=engine.name,
        context=listed.context or None,
    )


@dataclass(frozen=True, slots=True)
class RemoteText:
    """What the page asks of a model's text: nothing of its tokenizer and template is here."""

    words: Words
    chats: bool = True
    borrows: bool = False
    thinking: tuple[Thinking, ...] = THINKING
    own_sampling: Mapping[str, float] = field(
        default_factory=dict
    )  # which the engine applies itself

    def count(self, text: str) -> int:
        """Tokens of a text, about."""
        return ceil(len(text.encode()) / _BYTES)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token that came with log probabilities."""
        return self.words.of(token)

    def decode(self, tokens: Iterable[int]) -> str:
        """Their text."""
        return b"".join(map(self.words.of, tokens)).decode(errors="replace")


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """A request that an engine can take."""

    model: "RemoteModel"
    chat: ChatRequest
    conditions: Conditions  # that its measurements are filed under
    continued: PartialAnswer  # the stored answer that this one continues
    freed: tuple[str, ...] = ()  # the engine itself knows what it holds
    prompt_tokens: int = 0  # it counts them
    first_tokens: tuple[int, ...] = ()

    def choice(self, index: int) -> "RemoteRequest":
        """The same prompt with the seed of one of several choices."""
        return replace(self, chat=self.chat.choice(index))

    def with_priors(self, priors: tuple[Prior, ...]) -> "RemoteRequest":
        """The engine has measurements of its own."""
        del priors
        return self

    def start(self, sink: AnswerSink, news: Observable | None = None) -> RunningReply:
        """Let the engine answer."""
        model = self.model
        answer = RemoteAnswer(_Asked(model, self), model.words, f"it ran on {model.where}")
        return RunningReply(answer, self.continued, sink, news)


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """One model of one engine; ``locals_`` names what could answer here instead."""

    connection: "Connection"
    listed: Listed
    locals_: Callable[[], Sequence[str]]
    template: str = ""

    @property
    def entry(self) -> CatalogEntry:
        """As it is listed here."""
        return remote_entry(self.connection.engine, self.listed)

    @property
    def words(self) -> Words:
        """Its tokens, as they came with log probabilities."""
        return self.connection.words

    @property
    def where(self) -> str:
        """The machine, for people."""
        return f"the engine {self.connection.engine.name} ({self.connection.engine.host})"

    @property
    def away(self) -> str:
        """Where answers come from, in one sentence for those who write messages."""
        if self.connection.engine.on_this_machine:
            return f"{self.where} answers: another program on this machine"
        return f"{self.where} answers: your messages leave this machine"

    @property
    def facts(self) -> ModelFacts:
        """What is known of it here: little more than its context, 0 where not even that is."""
        return ModelFacts(self.entry.name, self.listed.context, 0, 0, 0, (PLAIN,))

    @property
    def text(self) -> RemoteText:
        """Stands in for the text of a model with files."""
        return RemoteText(self.words)

    def prepare(self, chat: ChatRequest, continued: PartialAnswer | None = None) -> RemoteRequest:
        """Check a request; raises InvalidRequest, UnknownDrafter."""
        check_request(chat)
        check_fields(chat, takes_gbnf=self.listed.owned_by in _GBNF)
        conditions = Conditions(
            model=self.entry.name,
            draft="",
            machine=self.connection.engine.name,
            temperature=temperature_class(chat.sampling),
            task=task_class(chat.conversation_or_text),
        )
        return RemoteRequest(self, chat, conditions, continued or PartialAnswer())

    async def prompt_tokens(self, chat: ChatRequest) -> int:
        """Tokens of the prompt as the engine counts them; raises RemoteFailed where it does not."""
        body = chat_body(self.listed.id, chat, PartialAnswer())
        asked: Body = {name: body[name] for name in ("model", "messages", "tools") if name in body}
        found = await self.connection.post("/messages/count_tokens", {"max_tokens": 1, **asked})
        count = found.get("input_tokens") if isinstance(found, Mapping) else None
        if not isinstance(count, int):
            raise RemoteFailed(f"{self.where} counts no tokens of a prompt", 501)
        return count

    def seen(self, messages: Sequence[Message]) -> list[Message]:
        """The messages that fit the context, by a guess of their tokens; all where it is unknown."""
        sizes = [self.text.count(one.content) for one in messages]
        first = first_seen(messages, sizes, self.listed.context) if self.listed.context else 0
        system = messages[:1] if first and messages[0].role == "system" else []
        return [*system, *messages[first:]]

    def context_use(self, messages: Sequence[Message]) -> ContextUse:
        """How much of the context these take, about, and how many are left out."""
        seen = self.seen(messages)
        used = sum(self.text.count(one.content) for one in seen)
        return ContextUse(used, len(messages) - len(seen))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The Wire of one request."""

    model: RemoteModel
    prepared: RemoteRequest

    async def events(self) -> AsyncGenerator[Mapping[str, Any]]:
        """Ask, and yield the events; an error offers what could answer here."""
        chat, name = self.prepared.chat, self.model.listed.id
        path, write = ("/completions", text_body) if chat.continues else (
            "/chat/completions", chat_body
        )  # fmt: skip
        body: Body = write(name, chat, self.prepared.continued)
        if self.model.listed.owned_by == "sglang":  # its metrics are means over all requests
            body["return_spec_tokens_details"] = True
        try:
            async for event in self.model.connection.stream(path, body):
                yield event
        except RemoteFailed as error:
            raise self._with_offer(error) from error

    async def counters(self) -> Drafts | None:
        """Those of engines that tell of drafts only there."""
        model = self.model
        names = _COUNTERS.get(model.listed.owned_by or "")
        if names is None:
            return None
        address = model.connection.engine.address.removesuffix("/v1")
        found = metrics_of(await model.connection.get_text(f"{address}/metrics"))
        drafted, accepted, passes = (int(found.get(name, 0)) for name in names)
        return Drafts(drafted, accepted, passes)

    def broken(self, what: str) -> RemoteFailed:
        """The error of an answer that is not as it should be."""
        said = f"{self.model.where} {what}"
        return self._with_offer(RemoteFailed(said, 502, "engine_answer_broken"))

    def _with_offer(self, error: RemoteFailed) -> RemoteFailed:
        here = next(iter(self.model.locals_()), "")
        if error.status < 500 or not here or "choose" in str(error):
            return error
        return RemoteFailed(
            f"{error}; try again, or choose {here}, which runs here",
            error.status, error.code, error.retry_after,
        )  # fmt: skip
