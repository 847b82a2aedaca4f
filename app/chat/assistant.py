"""The use cases: answer a request; in stored conversations send, regenerate, extend, stop, expect."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from app.chat.answering_model import AnsweringModel, ContextUse, Prepared
from app.chat.current_model import CurrentModel
from app.chat.loaded_model import LoadedModel
from app.chat.loader import ChosenTemplates, Loader
from app.chat.prefetch import ExpectedQuestion, Prefetch
from app.chat.remote.engines import RemoteEngines
from app.chat.reply import Arrived, RunningReply, follow
from app.chat.stored_answer import AnswerSink, FiguresOnly, StoredAnswer
from app.chat.totals import Totals
from app.errors import HistoryError, UnknownConversation
from app.history.records import Conditions, StoredMessage
from app.history.store import History
from app.models.catalog import CatalogEntry, load_catalog
from app.observable import Observable
from app.request import AnswerEvent, ChatRequest, Message, PartialAnswer, ReplyOptions
from app.settings import Settings
from app.text.named_templates import document
from engine.request import GenerationRequest, ModelFacts, Prior

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0  # at the end, for running answers to be stored as cancelled


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer of a conversation that is being written, and the id of the question."""

    reply: RunningReply
    question: str


class Assistant:
    """The model that answers, and the history that its answers are written to."""

    def __init__(
        self,
        settings: Settings,
        model: LoadedModel | None,
        history: History,
        loader: Loader | None = None,
    ) -> None:
        """Without a ``model`` one of another engine answers: ``switch`` chooses it."""
        self.loader = loader or Loader(history.calibrations, ChosenTemplates(settings.home))
        self.history = history
        self.settings = settings  # with the folders of state and models
        engines = RemoteEngines(settings.engines, self._local_names)
        self.current = CurrentModel(settings, self.loader, engines, self._stop_all, model)
        self._running: set[RunningReply] = set()
        self.answers_started = 0  # so that a measurement sees that another answer started
        self.totals = Totals()
        self._by_conversation: dict[str, Answering] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.prefetch = Prefetch(self._prefetch_request)
        self._before_close: list[Callable[[], Awaitable[None]]] = []

    @classmethod
    async def open(
        cls,
        settings: Settings,
        model: str,
        draft: str | None = None,
        loader: Loader | None = None,
        *,
        keeps: bool = True,
    ) -> "Assistant":
        """Load ``model`` as ``LoadedModel.open`` does; raises HistoryError besides.

        A model of another engine needs no load. Without ``keeps`` it can do without the history, on a full disk for example.
        """
        opened = History.open if keeps else History.open_or_forget
        history = await asyncio.to_thread(opened, settings.database)
        loader = loader or Loader()
        loader.kept, loader.templates = history.calibrations, ChosenTemplates(settings.home)
        try:
            if settings.engine_of(model) is not None:
                assistant = cls(settings, None, history, loader)
                await assistant.switch(model)
                return assistant
            loaded = await LoadedModel.open(settings, model, draft, settings.dtype, loader)
        except BaseException:
            await asyncio.to_thread(history.close)
            raise
        return cls(settings, loaded, history, loader)

    @property
    def facts(self) -> ModelFacts:
        """Facts about the model that answers."""
        return self.loaded.facts

    @property
    def entry(self) -> CatalogEntry:
        """The model that answers in the catalogue."""
        return self.loaded.entry

    @property
    def loaded(self) -> AnsweringModel:
        """The model that answers now, here or elsewhere."""
        return self.current.answers

    @property
    def loading(self) -> str:
        """The model that is being loaded."""
        return self.current.loading

    @property
    def answering(self) -> int:
        """Answers that are being written."""
        return len(self._running)

    async def idle(self) -> None:
        """Wait until no answer is being written."""
        while self._running:
            await asyncio.gather(*(reply.ended() for reply in list(self._running)))
            await asyncio.sleep(0)  # for the callbacks of the end

    def models(self) -> list[CatalogEntry]:
        """Every model that can be named, in catalogue order, those of other engines last."""
        return self.current.entries()

    async def switch(self, model: str, context: int | None = None, *, anyway: bool = False) -> None:
        """Let ``model`` answer; one of this machine is loaded, and running answers end as if stopped.

        ``context``: tokens of its longest conversation; ``anyway``: also where memory seems too small.
        One model at a time is in memory. When it cannot be loaded, the previous one is loaded again.
        """
        await self.current.switch(model, context, anyway=anyway)

    async def use_template(self, name: str) -> None:
        """Chat with a base model by the template of that name; empty: only continue texts.

        The choice is kept for this model. Raises SettingsError, ModelUnusable.
        """
        await self.current.use_template(name)

    async def prepare(
        self, request: ChatRequest, continued: PartialAnswer | None = None
    ) -> Prepared:
        """Render and encode the prompt, once for all answers. Raises InvalidRequest, ContextOverflow."""
        model = await self.current.ready(request.model)
        prepared = await asyncio.to_thread(model.prepare, request, continued)
        priors = await asyncio.to_thread(self._priors, prepared.conditions)
        return prepared.with_priors(priors)

    async def answers(
        self,
        requests: Sequence[Prepared],
        count: int = 1,
        quiet_seconds: float | None = None,
    ) -> AsyncGenerator[Arrived | None]:
        """Answer each request ``count`` times: deltas, then one completion each, with their index.

        A seed grows by one from answer to answer of a request. None comes where nothing came for
        ``quiet_seconds``. Closing the iterator cancels. When the engine crashes, the completion has
        the partial text, finish reason ERROR and ``error``; the next answer runs on a restarted engine.
        """
        news = Observable()
        replies = [
            self._start(
                each.choice(at),
                FiguresOnly(self.history, each.conditions, each.chat.conversation),
                news,
            )
            for each in requests
            for at in range(count)
        ]
        async with aclosing(follow(replies, quiet_seconds)) as arriving:
            async for arrived in arriving:
                yield arrived

    async def reply(self, request: ChatRequest) -> AsyncGenerator[AnswerEvent]:
        """The same for one answer to one request."""
        prepared = await self.prepare(request)
        async with aclosing(self.answers([prepared])) as arriving:
            async for arrived in arriving:
                if arrived is not None:
                    yield arrived[1]

    async def send(
        self, conversation: str, text: str, options: ReplyOptions, edits: str | None = None
    ) -> RunningReply:
        """Store ``text`` as the user's next message and start its answer, which is stored too.

        With ``edits``, a message of the user, ``text`` becomes another version of that message.
        Nothing is stored when the message cannot be answered: empty, or longer than the context.
        """
        async with self._lock(conversation):
            path = await self._path(conversation, edits)
            if edits is not None:
                path = path[:-1]
            messages = [*map(_message, path), Message("user", text)]
            seen = await self._seen(conversation, messages)
            prepared = await self.prepare(self._request(conversation, seen, options))
            parent = path[-1].id if path else None
            add = self.history.add_message
            question = await asyncio.to_thread(add, conversation, parent, "user", text)
            return self._answer(prepared, question)

    async def regenerate(
        self, conversation: str, options: ReplyOptions, answer: str | None = None
    ) -> RunningReply:
        """Answer a question again, the last one or that of ``answer``: another version of its answer."""
        async with self._lock(conversation):
            path = await self._path(conversation, answer)
            while path and path[-1].role != "user":
                path.pop()
            if not path:
                raise UnknownConversation(f"conversation {conversation!r} has no question yet")
            seen = await self._seen(conversation, [*map(_message, path)])
            request = self._request(conversation, seen, options)
            return self._answer(await self.prepare(request), path[-1])

    async def extend(self, conversation: str, options: ReplyOptions) -> RunningReply:
        """Continue the last answer where it ends; it stays one message."""
        async with self._lock(conversation):
            path = await self._path(conversation, None)
            if len(path) < 2 or path[-1].role != "assistant":
                raise UnknownConversation(f"conversation {conversation!r} ends with no answer")
            facts = await asyncio.to_thread(self.history.facts, conversation)
            spans = facts[path[-1].id].spans if path[-1].id in facts else ()
            continued = PartialAnswer(path[-1].content, 0, spans)
            seen = await self._seen(conversation, [*map(_message, path)])
            request = self._request(conversation, seen[:-1], options)
            return self._answer(await self.prepare(request, continued), path[-2], path[-1])

    def running(self, conversation: str) -> Answering | None:
        """The answer of ``conversation`` that is being written."""
        return self._by_conversation.get(conversation)

    def stop(self, conversation: str) -> None:
        """End the running answer of ``conversation``; its text so far is kept."""
        if conversation in self._by_conversation:
            self._by_conversation[conversation].reply.cancel()

    def expect(self, expected: ExpectedQuestion | None) -> None:
        """A person is about to ask this: read what comes before the question while the engine is idle.

        A conversation that was opened again, or an attached file, has to be read before its next
        question; meanwhile the person reads or types. Every answer goes first.
        """
        if self.settings.read_ahead:
            self.prefetch.expect(expected)
            self._resume_prefetch()

    async def prompt_tokens(self, request: ChatRequest) -> int:
        """Tokens of the prompt of a request, even where the context is too short."""
        return await (await self.current.ready(request.model)).prompt_tokens(request)

    async def context_use(self, system: str, messages: Sequence[StoredMessage]) -> ContextUse:
        """How much of the context a conversation takes, and how many messages are left out."""
        if not messages:
            return ContextUse(0, 0)
        whole = [*_system(system), *map(_message, messages)]
        return await asyncio.to_thread(self.loaded.context_use, whole)

    def _resume_prefetch(self) -> None:
        local = self.current.local
        if local is not None and local is self.loaded and not (self._running or self.loading):
            self.prefetch.resume(local)

    async def _prefetch_request(
        self, model: LoadedModel, expected: ExpectedQuestion
    ) -> GenerationRequest:
        messages = _system(expected.system)
        if expected.conversation is not None:
            path = await self._path(expected.conversation, None)
            question = Message("user", expected.prefix)
            messages = await self._seen(expected.conversation, [*map(_message, path), question])
            messages.pop()
        return await asyncio.to_thread(
            model.read_ahead, messages, expected.prefix, expected.conversation, expected.thinking
        )

    def before_close(self, end: Callable[[], Awaitable[None]]) -> None:
        """Call ``end`` when the assistant closes: for what lives as long, such as downloads."""
        self._before_close.append(end)

    async def close(self) -> None:
        """End running answers and the engine's process, close the history."""
        others = [asyncio.ensure_future(end()) for end in self._before_close]  # may need a network
        try:
            await self._stop_all()
            await self.current.close()
            await asyncio.gather(*(reply.ended() for reply in list(self._running)))
            await asyncio.to_thread(self.history.close)
        finally:
            await asyncio.gather(*others)

    def _local_names(self) -> list[str]:
        """Models that could answer on this machine, the loaded one first."""
        local = self.current.local
        known = (one.name for one in load_catalog(self.settings) if one.visible and one.folder)
        return [*([local.entry.name] if local else []), *known]

    async def _stop_all(self) -> None:
        await self.prefetch.close()
        replies = list(self._running)
        for reply in replies:
            reply.cancel()
        ending = [asyncio.create_task(reply.ended()) for reply in replies]
        if ending:  # an engine that does not react is ended with its requests
            await asyncio.wait(ending, timeout=PATIENCE_SECONDS)

    def _lock(self, conversation: str) -> asyncio.Lock:
        """One question of a conversation at a time."""
        return self._locks.setdefault(conversation, asyncio.Lock())

    async def _path(self, conversation: str, leaf: str | None) -> list[StoredMessage]:
        """The messages up to ``leaf``; a running answer is stored first."""
        running = self._by_conversation.get(conversation)
        if running is not None:
            await running.reply.ended()
        path = await asyncio.to_thread(self.history.messages, conversation, leaf)
        if leaf is not None and (not path or path[-1].id != leaf):
            raise UnknownConversation(f"conversation {conversation!r} has no message {leaf!r}")
        return path

    def _request(
        self, conversation: str, seen: Sequence[Message], options: ReplyOptions
    ) -> ChatRequest:
        """A base model continues the conversation as one text."""
        chats = self.loaded.text.chats
        return ChatRequest(
            messages=tuple(seen) if chats else (),
            text="" if chats else document(seen),
            sampling=options.sampling,
            max_tokens=options.max_tokens,
            drafter=options.drafter,
            conversation=conversation,
            thinking=options.thinking,
            unset=options.unset,
        )

    async def _seen(self, conversation: str, messages: list[Message]) -> list[Message]:
        """The system prompt and the messages; the oldest may be left out."""
        about = await asyncio.to_thread(self.history.conversation, conversation)
        return await asyncio.to_thread(self.loaded.seen, [*_system(about.system), *messages])

    def _priors(self, conditions: Conditions) -> tuple[Prior, ...]:
        """What earlier answers measured; an answer can do without."""
        try:
            return self.history.measurements.priors(conditions)
        except HistoryError:
            log.exception("an answer starts without the measurements of earlier ones")
            return ()

    def _start(
        self, prepared: Prepared, sink: AnswerSink, news: Observable | None = None
    ) -> RunningReply:
        reply = prepared.start(sink, news)
        self._running.add(reply)
        self.answers_started += 1
        reply.when_ended(partial(self._ended, reply))
        return reply

    def _ended(self, reply: RunningReply) -> None:
        self._running.discard(reply)
        if reply.completion is not None:
            self.totals.add(reply.completion)
        self._resume_prefetch()

    def _answer(
        self,
        prepared: Prepared,
        question: StoredMessage,
        continued: StoredMessage | None = None,
    ) -> RunningReply:
        conversation = question.conversation
        sink = StoredAnswer(self.history, prepared.conditions, conversation, question.id, continued)
        reply = self._start(prepared, sink)
        answering = self._by_conversation[conversation] = Answering(reply, question.id)
        reply.when_ended(partial(self._forget, conversation, answering))
        return reply

    def _forget(self, conversation: str, answering: Answering) -> None:
        if self._by_conversation.get(conversation) is answering:
            del self._by_conversation[conversation]


def _system(text: str) -> list[Message]:
    """The system prompt as a message, if there is one."""
    return [Message("system", text)] if text.strip() else []


def _message(stored: StoredMessage) -> Message:
    return Message(stored.role, stored.content)
