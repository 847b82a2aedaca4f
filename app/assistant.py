"""The use cases: answer a turn, continue a stored conversation, answer again, stop."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from app.answer_text import StopFilter
from app.catalog import CatalogEntry, find_entry, load_catalog, resolve
from app.errors import HistoryError, UnknownConversation
from app.history.machine import machine_name
from app.history.records import Conditions, StoredMessage
from app.history.store import History
from app.reply import RunningReply
from app.settings import Settings
from app.task_class import task_class, temperature_class
from app.text import ChatText
from app.turn import Delta, Message, Piece, ReplyOptions, Report, Turn, check_turn
from app.worker import EngineWorker
from engine.errors import ContextOverflow, InvalidRequest
from engine.request import GenerationRequest, ModelFacts, ModelSpec, Prior, Stats

__all__ = ["Assistant", "Delta", "Message", "Piece", "ReplyOptions", "Report", "Turn"]

log = logging.getLogger(__name__)

Record = Callable[[Report], None]

PATIENCE_SECONDS = 2.0  # at the end, for running answers to be stored as cancelled


@dataclass(frozen=True, slots=True)
class Parts:
    """What an assistant is put together from; ``open`` makes the real ones."""

    settings: Settings
    entry: CatalogEntry
    spec: ModelSpec
    facts: ModelFacts
    worker: EngineWorker
    text: ChatText
    history: History


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A turn that the engine can take, and what its measurements will be filed under."""

    turn: Turn
    request: GenerationRequest
    conditions: Conditions


class Assistant:
    """One loaded model, its process, and the history it writes to."""

    def __init__(self, parts: Parts) -> None:
        self.facts, self.entry = parts.facts, parts.entry
        self.history = parts.history
        self._settings, self._spec = parts.settings, parts.spec
        self._machine = machine_name(parts.spec.device, parts.spec.dtype)
        self._worker, self._text = parts.worker, parts.text
        self._running: set[RunningReply] = set()
        self._by_conversation: dict[str, RunningReply] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def open(cls, settings: Settings, model: str, draft: str | None = None) -> "Assistant":
        """Load ``model`` (a catalogue name or a folder), drafting with the model ``draft`` if given.

        Raises UnknownModel, ModelUnusable, WorkerCrashed, HistoryError.
        """
        spec = resolve(settings, model, draft)
        entry = find_entry(load_catalog(settings), model)
        text = await asyncio.to_thread(ChatText.load, Path(spec.folder))
        history = await asyncio.to_thread(History.open, settings.database)
        worker = EngineWorker(spec)
        try:
            facts = await worker.start()
        except BaseException:
            await worker.close()
            history.close()
            raise
        return cls(Parts(settings, entry, spec, facts, worker, text, history))

    async def reply(self, turn: Turn) -> AsyncGenerator[Delta]:
        """Answer ``turn``: pieces, then exactly one Report, last.

        Raises InvalidRequest or ContextOverflow before the first piece. Closing the iterator
        cancels. When the engine crashes, the Report has the partial text, finish reason ERROR
        and ``error``; the next reply runs on a restarted engine.
        """
        prepared = await self._prepare(turn)
        record = partial(self._record, prepared.conditions, turn.session)
        async with aclosing(self._start(prepared, record).deltas()) as deltas:
            async for delta in deltas:
                yield delta

    async def send(
        self, conversation: str, text: str, options: ReplyOptions
    ) -> AsyncGenerator[Delta]:
        """Store ``text`` as the user's next message, answer it, and store the answer, partial too.

        Nothing is stored when the message cannot be answered: empty, or past the context.
        """
        async with self._turns.setdefault(conversation, asyncio.Lock()):
            await self._settled(conversation)
            path = await asyncio.to_thread(self.history.messages, conversation)
            turn = _turn(conversation, [*map(_message, path), Message("user", text)], options)
            prepared = await self._prepare(turn)
            parent = path[-1].id if path else None
            add = self.history.add_message
            asked = await asyncio.to_thread(add, conversation, parent, "user", text)
            reply = self._answer(prepared, asked)
        async with aclosing(reply.deltas()) as deltas:
            async for delta in deltas:
                yield delta

    async def regenerate(self, conversation: str, options: ReplyOptions) -> AsyncGenerator[Delta]:
        """Answer the last user message again: a new sibling of the last answer."""
        async with self._turns.setdefault(conversation, asyncio.Lock()):
            await self._settled(conversation)
            path = await asyncio.to_thread(self.history.messages, conversation)
            while path and path[-1].role != "user":
                path.pop()
            if not path:
                raise UnknownConversation(f"conversation {conversation!r} holds no question yet")
            turn = _turn(conversation, [_message(stored) for stored in path], options)
            reply = self._answer(await self._prepare(turn), path[-1])
        async with aclosing(reply.deltas()) as deltas:
            async for delta in deltas:
                yield delta

    def stop(self, conversation: str) -> None:
        """End the running answer of ``conversation``: its stream ends with a CANCELLED Report."""
        if conversation in self._by_conversation:
            self._by_conversation[conversation].cancel()

    def models(self) -> list[CatalogEntry]:
        """Every model that can be named, in catalogue order."""
        return list(load_catalog(self._settings))

    async def close(self) -> None:
        """Stop running answers, end the engine's process, close the history."""
        replies = list(self._running)
        for reply in replies:
            reply.cancel()
        ending = [asyncio.create_task(reply.ended()) for reply in replies]
        if ending:  # an engine that does not answer is ended with its requests
            await asyncio.wait(ending, timeout=PATIENCE_SECONDS)
        await self._worker.close()
        await asyncio.gather(*ending)
        await asyncio.to_thread(self.history.close)

    async def _prepare(self, turn: Turn) -> _Prepared:
        """The turn as the engine takes it; everything that can be refused here is."""
        check_turn(turn)
        self._check_runs(turn.drafter)
        prompt = await asyncio.to_thread(self._text.encode_chat, turn.messages)
        left = self.facts.context - len(prompt)
        if left < 1:
            raise ContextOverflow(len(prompt) + 1, self.facts.context)
        conditions = self._conditions(turn)
        request = GenerationRequest(
            prompt=prompt,
            max_tokens=left if turn.max_tokens is None else turn.max_tokens,
            sampling=turn.sampling,
            stop_tokens=self._text.stop_tokens,
            session=turn.session,
            drafter=turn.drafter,
            priors=await asyncio.to_thread(self._priors, conditions),
        )
        return _Prepared(turn, request, conditions)

    def _conditions(self, turn: Turn) -> Conditions:
        draft = self._spec.draft_folder
        return Conditions(
            model=self.entry.name,
            draft=Path(draft).name if draft else "",
            machine=self._machine,
            temperature=temperature_class(turn.sampling),
            task=task_class(turn.messages),
        )

    def _priors(self, conditions: Conditions) -> tuple[Prior, ...]:
        """What earlier replies measured; an answer needs none of it."""
        try:
            return self.history.measurements.priors(conditions)
        except HistoryError:
            log.exception("an answer starts without what earlier ones measured")
            return ()

    def _check_runs(self, drafter: str) -> None:
        for name, why in self.facts.refused:
            if name == drafter:
                raise InvalidRequest(f"{drafter} cannot run with {self.facts.name}: {why}")

    def _start(self, prepared: _Prepared, record: Record) -> RunningReply:
        reply = RunningReply(
            self._worker.generate(prepared.request),
            self._text.detokenizer(),
            StopFilter(prepared.turn.stop),
            _unfinished(prepared.request),
            record,
        )
        self._running.add(reply)
        reply.when_ended(partial(self._running.discard, reply))
        return reply

    def _answer(self, prepared: _Prepared, asked: StoredMessage) -> RunningReply:
        reply = self._start(prepared, partial(self._store, prepared.conditions, asked))
        self._by_conversation[asked.conversation] = reply
        reply.when_ended(partial(self._forget, asked.conversation, reply))
        return reply

    def _forget(self, conversation: str, reply: RunningReply) -> None:
        if self._by_conversation.get(conversation) is reply:
            del self._by_conversation[conversation]

    async def _settled(self, conversation: str) -> None:
        """One answer of a conversation at a time; a stopped one is stored before the next."""
        running = self._by_conversation.get(conversation)
        if running is not None:
            await running.ended()

    def _store(self, conditions: Conditions, asked: StoredMessage, report: Report) -> None:
        """The answer and what it measured; runs in a thread."""
        answer = self.history.add_message(
            asked.conversation, asked.id, "assistant", report.text, report.finish_reason
        )
        self._record(conditions, asked.conversation, report, answer.id)

    def _record(
        self,
        conditions: Conditions,
        session: str | None,
        report: Report,
        message: str | None = None,
    ) -> None:
        self.history.measurements.record(conditions, report.stats, session, message)


def _turn(conversation: str, messages: list[Message], options: ReplyOptions) -> Turn:
    return Turn(
        messages=tuple(messages),
        sampling=options.sampling,
        max_tokens=options.max_tokens,
        drafter=options.drafter,
        session=conversation,
    )


def _message(stored: StoredMessage) -> Message:
    return Message(stored.role, stored.content)


def _unfinished(request: GenerationRequest) -> Stats:
    """What is known of an answer that the engine could not describe; counts come later."""
    return Stats(
        drafter=request.drafter,
        why="the engine stopped before it could say",
        prompt_tokens=len(request.prompt),
        cached_tokens=0,
        emitted=0,
        passes=0,
        drafted=0,
        accepted=0,
        depths=(),
        prompt_seconds=0.0,
        decode_seconds=0.0,
    )
