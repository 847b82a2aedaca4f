"""The use cases: answer a turn; in stored conversations ask, ask again, continue, stop, expect."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakValueDictionary

from app.chat.loaded_model import ContextUse, LoadedModel, PreparedRequest
from app.chat.prediction import compared
from app.chat.prefetch import ExpectedQuestion, Prefetch
from app.chat.reply import AnswerSink, RunningReply
from app.chat.stored_answer import FiguresOnly, StoredAnswer
from app.chat.totals import Totals
from app.errors import AppError, HistoryError, UnknownConversation
from app.history.records import Conditions, StoredMessage
from app.history.store import History
from app.models.catalog import CatalogEntry, load_catalog, resolve
from app.reasoning_effort import Thinking
from app.request import (
    ChatRequest,
    Completion,
    Delta,
    Message,
    PartialAnswer,
    Piece,
    ReplyOptions,
    ToolUse,
)
from app.settings import Settings
from app.text.tools.call_parser import ToolCallParser
from engine.errors import EngineError
from engine.hardware.plan import Plan
from engine.request import GenerationRequest, ModelFacts, Prior

__all__ = [
    "Assistant",
    "ChatRequest",
    "Completion",
    "Delta",
    "Message",
    "PartialAnswer",
    "Piece",
    "ReplyOptions",
]

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0  # at the end, for running answers to be stored as cancelled


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer of a conversation that is being written, and the message that it answers."""

    reply: RunningReply
    asked: str


class Assistant:
    """One loaded model and the history that its answers are written to."""

    def __init__(self, settings: Settings, model: LoadedModel, history: History) -> None:
        self.history = history
        self._settings, self._model = settings, model
        self._running: set[RunningReply] = set()
        self.begun = 0  # answers so far: who measures sees that another one came in between
        self.tally = Totals()
        self._by_conversation: dict[str, Answering] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._switching = asyncio.Lock()
        self._ahead = Prefetch(self._asks_ahead)
        self._told: list[Callable[[], object]] = []
        self._ending: list[Callable[[], Awaitable[None]]] = []
        self.loading = ""  # the model that is being loaded

    @classmethod
    async def open(cls, settings: Settings, model: str, draft: str | None = None) -> "Assistant":
        """Load ``model`` (a catalogue name or a folder), drafting with the model ``draft`` if given.

        Raises UnknownModel, ModelUnusable, WorkerCrashed, HistoryError.
        """
        loaded = await LoadedModel.open(settings, model, draft, settings.dtype)
        try:
            history = await asyncio.to_thread(History.open, settings.database)
        except BaseException:
            await loaded.worker.close()
            raise
        return cls(settings, loaded, history)

    @property
    def settings(self) -> Settings:
        """Where state and models lie."""
        return self._settings

    @property
    def plan(self) -> Plan | None:
        """Where the loaded model lies, and why; None for models that fit anywhere."""
        return self._model.plan

    @property
    def facts(self) -> ModelFacts:
        """What the loaded model says of itself."""
        return self._model.facts

    @property
    def entry(self) -> CatalogEntry:
        """The loaded model in the catalogue."""
        return self._model.entry

    @property
    def loaded(self) -> LoadedModel:
        """The model that answers now, for measurements on it."""
        return self._model

    @property
    def answering(self) -> int:
        """Answers that are being written."""
        return len(self._running)

    @property
    def reading(self) -> bool:
        """Whether something is read ahead."""
        return self._ahead.active

    async def idle(self) -> None:
        """Wait until no answer is being written."""
        while self._running:
            await asyncio.gather(*(reply.ended() for reply in list(self._running)))
            await asyncio.sleep(0)  # for those that were told of the end

    def models(self) -> list[CatalogEntry]:
        """Every model that can be named, in catalogue order."""
        return list(load_catalog(self._settings))

    async def switch(self, model: str) -> None:
        """Load ``model`` in place of this one; answers that run end as if they were stopped.

        One at a time is in memory. When it cannot be loaded, the one before answers again.
        """
        resolve(self._settings, model)  # a wrong name changes nothing
        async with self._switching:
            self._now_loading(model)
            try:
                await self._replace(model)
            finally:
                self._now_loading("")

    def when_switching(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` whenever a model begins to be loaded, and when that is over."""
        self._told.append(tell)

    def when_reading(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` whenever reading ahead begins, and when it is over."""
        self._ahead.tells.append(tell)

    async def _replace(self, model: str) -> None:
        await self._stop_all()
        before = self._model
        await before.worker.close()
        try:
            self._model = await LoadedModel.open(self._settings, model)
        except (AppError, EngineError):
            keep_alive = self._settings.keep_alive
            self._model = await LoadedModel.load(before.entry, before.spec, before.plan, keep_alive)
            raise

    def _now_loading(self, model: str) -> None:
        self.loading = model
        for tell in self._told:
            tell()

    async def reply(self, turn: ChatRequest) -> AsyncGenerator[Delta]:
        """Answer ``turn``: pieces, then exactly one Report, last.

        Raises InvalidRequest or ContextOverflow before the first piece. Closing the iterator
        cancels. When the engine crashes, the Report has the partial text, finish reason ERROR
        and ``error``; the next reply runs on a restarted engine.
        """
        prepared = await self._prepare(turn)
        keeper = FiguresOnly(self.history, self._conditions(prepared), turn.session)
        async with aclosing(self._start(prepared, keeper).deltas()) as deltas:
            async for delta in deltas:
                yield _compared(prepared, delta)

    async def send(
        self, conversation: str, text: str, options: ReplyOptions, edits: str | None = None
    ) -> RunningReply:
        """Store ``text`` as the user's next message and begin its answer, which is stored too.

        With ``edits``, a message of the user, ``text`` becomes another version of that message.
        Nothing is stored when the message cannot be answered: empty, or past the context.
        """
        async with self._turn(conversation):
            path = await self._path(conversation, edits)
            if edits is not None:
                path = path[:-1]
            said = [*map(_message, path), Message("user", text)]
            prepared = await self._prepare(await self._as_turn(conversation, said, options))
            parent = path[-1].id if path else None
            add = self.history.add_message
            asked = await asyncio.to_thread(add, conversation, parent, "user", text)
            return self._answer(prepared, asked)

    async def regenerate(
        self, conversation: str, options: ReplyOptions, answer: str | None = None
    ) -> RunningReply:
        """Answer a question again, the last one or that of ``answer``: a version of its answer."""
        async with self._turn(conversation):
            path = await self._path(conversation, answer)
            while path and path[-1].role != "user":
                path.pop()
            if not path:
                raise UnknownConversation(f"conversation {conversation!r} holds no question yet")
            turn = await self._as_turn(conversation, [*map(_message, path)], options)
            return self._answer(await self._prepare(turn), path[-1])

    async def extend(self, conversation: str, options: ReplyOptions) -> RunningReply:
        """Go on with the last answer where it ends; it stays one message."""
        async with self._turn(conversation):
            path = await self._path(conversation, None)
            if len(path) < 2 or path[-1].role != "assistant":
                raise UnknownConversation(f"conversation {conversation!r} ends with no answer")
            told = await asyncio.to_thread(self.history.facts, conversation)
            spans = told[path[-1].id].spans if path[-1].id in told else ()
            begun = PartialAnswer(path[-1].content, 0, spans)
            whole = await self._as_turn(conversation, [*map(_message, path)], options)
            turn = replace(whole, messages=whole.messages[:-1])
            return self._answer(await self._prepare(turn, begun), path[-2], path[-1])

    def running(self, conversation: str) -> Answering | None:
        """The answer of ``conversation`` that is being written, for anybody to watch."""
        return self._by_conversation.get(conversation)

    def stop(self, conversation: str) -> None:
        """End the running answer of ``conversation``, which is kept as far as it got."""
        if conversation in self._by_conversation:
            self._by_conversation[conversation].reply.cancel()

    def expect(self, expected: ExpectedQuestion | None) -> None:
        """A person is about to ask this: read what it stands behind, while nobody asks anything.

        Opened again, a conversation has to be read before it is gone on with, and a file before it is
        asked about; meanwhile the person reads or writes. Every answer goes first.
        """
        if self._settings.read_ahead:
            self._ahead.expect(expected)
            self._read_ahead()

    async def thinking(self) -> tuple[Thinking, ...]:
        """How much of it can be asked of the loaded model."""
        return await asyncio.to_thread(lambda: self._model.text.thinking)

    async def count(self, text: str) -> int:
        """Tokens of a text."""
        return await asyncio.to_thread(self._model.text.count, text)

    async def prompt_tokens(self, turn: ChatRequest) -> int:
        """Tokens of the prompt that a turn would get, whether or not it fits the context."""
        async with self._switching:
            count = self._model.prompt_tokens
        return await asyncio.to_thread(count, turn)

    def token_bytes(self, token: int) -> bytes:
        """What one token of the loaded model stands for; perhaps a part of a character."""
        return self._model.text.token_bytes(token)

    async def call_reader(self, use: ToolUse) -> ToolCallParser:
        """Reads the calls out of an answer of the loaded model."""
        form = await asyncio.to_thread(lambda: self._model.text.call_form)
        return ToolCallParser(form, use.tools)

    async def standing(self, system: str, messages: Sequence[StoredMessage]) -> ContextUse:
        """How much of the context a conversation takes, and which of its messages are left out."""
        if not messages:
            return ContextUse(0, 0)
        said = [*_told(system), *map(_message, messages)]
        return await asyncio.to_thread(self._model.standing, said)

    def _read_ahead(self) -> None:
        if not (self._running or self.loading):
            self._ahead.go_on(self._model)

    async def _asks_ahead(
        self, model: LoadedModel, expected: ExpectedQuestion
    ) -> GenerationRequest:
        said = _told(expected.system)
        if expected.conversation is not None:
            path = await self._path(expected.conversation, None)
            asked = Message("user", expected.begun)
            said = await self._said(expected.conversation, [*map(_message, path), asked])
            said.pop()
        ahead = model.ahead
        begun, thinking = expected.begun, expected.thinking
        return await asyncio.to_thread(ahead, said, begun, expected.conversation, thinking)

    def before_close(self, end: Callable[[], Awaitable[None]]) -> None:
        """What lives as long as the assistant, downloads for one, ends with it."""
        self._ending.append(end)

    async def close(self) -> None:
        """Stop what runs beside it and running answers, end the engine's process, close the history."""
        beside = [asyncio.ensure_future(end()) for end in self._ending]  # may wait for a network
        try:
            await self._stop_all()
            await self._model.worker.close()
            await asyncio.gather(*(reply.ended() for reply in list(self._running)))
            await asyncio.to_thread(self.history.close)
        finally:
            await asyncio.gather(*beside)

    async def _stop_all(self) -> None:
        await self._ahead.close()
        replies = list(self._running)
        for reply in replies:
            reply.cancel()
        ending = [asyncio.create_task(reply.ended()) for reply in replies]
        if ending:  # an engine that does not answer is ended with its requests
            await asyncio.wait(ending, timeout=PATIENCE_SECONDS)

    def _turn(self, conversation: str) -> asyncio.Lock:
        """One question of a conversation is put at a time."""
        return self._turns.setdefault(conversation, asyncio.Lock())

    async def _path(self, conversation: str, leaf: str | None) -> list[StoredMessage]:
        """The messages up to ``leaf``; a running answer is stored before."""
        running = self._by_conversation.get(conversation)
        if running is not None:
            await running.reply.ended()
        path = await asyncio.to_thread(self.history.messages, conversation, leaf)
        if leaf is not None and (not path or path[-1].id != leaf):
            raise UnknownConversation(f"conversation {conversation!r} has no message {leaf!r}")
        return path

    async def _as_turn(
        self, conversation: str, messages: list[Message], options: ReplyOptions
    ) -> ChatRequest:
        return ChatRequest(
            messages=tuple(await self._said(conversation, messages)),
            sampling=options.sampling,
            max_tokens=options.max_tokens,
            drafter=options.drafter,
            session=conversation,
            thinking=options.thinking,
        )

    async def _said(self, conversation: str, messages: list[Message]) -> list[Message]:
        """The messages, behind what the conversation tells the model first; the oldest may be left out."""
        about = await asyncio.to_thread(self.history.conversation, conversation)
        return await asyncio.to_thread(self._model.seen, [*_told(about.system), *messages])

    async def _prepare(
        self, turn: ChatRequest, begun: PartialAnswer | None = None
    ) -> PreparedRequest:
        async with self._switching:  # a model that is being loaded answers once it is there
            prepare = self._model.prepare
        prepared = await asyncio.to_thread(prepare, turn, begun or PartialAnswer())
        priors = await asyncio.to_thread(self._priors, self._conditions(prepared))
        return replace(prepared, request=replace(prepared.request, priors=priors))

    def _conditions(self, prepared: PreparedRequest) -> Conditions:
        return prepared.model.conditions(prepared.turn)

    def _priors(self, conditions: Conditions) -> tuple[Prior, ...]:
        """What earlier replies measured; an answer needs none of it."""
        try:
            return self.history.measurements.priors(conditions)
        except HistoryError:
            log.exception("an answer starts without what earlier ones measured")
            return ()

    def _start(self, prepared: PreparedRequest, keeper: AnswerSink) -> RunningReply:
        reply = prepared.model.start(prepared, keeper)
        self._running.add(reply)
        self.begun += 1
        reply.when_ended(partial(self._ended, reply))
        return reply

    def _ended(self, reply: RunningReply) -> None:
        self._running.discard(reply)
        if reply.report is not None:
            self.tally.add(reply.report)
        self._read_ahead()

    def _answer(
        self,
        prepared: PreparedRequest,
        asked: StoredMessage,
        continued: StoredMessage | None = None,
    ) -> RunningReply:
        conditions, conversation = self._conditions(prepared), asked.conversation
        keeper = StoredAnswer(self.history, conditions, conversation, asked.id, continued)
        reply = self._start(prepared, keeper)
        answering = self._by_conversation[conversation] = Answering(reply, asked.id)
        reply.when_ended(partial(self._forget, conversation, answering))
        return reply

    def _forget(self, conversation: str, answering: Answering) -> None:
        if self._by_conversation.get(conversation) is answering:
            del self._by_conversation[conversation]


def _compared(prepared: PreparedRequest, delta: Delta) -> Delta:
    """The same; a report also says how much of a prediction came true."""
    prediction = prepared.request.prediction
    if not prediction or isinstance(delta, Piece):
        return delta
    return replace(delta, foretold=compared(prediction, delta.token_ids))


def _told(system: str) -> list[Message]:
    """What the model is told first."""
    return [Message("system", system)] if system.strip() else []


def _message(stored: StoredMessage) -> Message:
    return Message(stored.role, stored.content)
