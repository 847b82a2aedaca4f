"""One running answer: deltas from its source in; the answer so far, and one completion out."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

from app.chat.stored_answer import AnswerSink
from app.errors import HistoryError
from app.observable import Observable
from app.request import AnswerEvent, Completion, Delta, PartialAnswer, combined
from engine.request import Stats

log = logging.getLogger(__name__)

SAVE_SECONDS = 0.5  # a killed process loses at most what came since


@dataclass(slots=True)
class Progress:
    """One answer so far; enough for a completion where its engine cannot give one."""

    continued: PartialAnswer  # the stored answer that this one continues
    text: str = ""  # tagged
    tokens: int = 0
    deltas: list[Delta] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    first_token_seconds: float | None = None
    news: Observable = field(default_factory=Observable)  # changes with every delta
    unsaved: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = field(default_factory=time.monotonic)

    def arrive(self) -> None:
        """Take the time of the first token."""
        if self.first_token_seconds is None:
            self.first_token_seconds = time.monotonic() - self.started

    def add(self, delta: Delta) -> None:
        """Show a delta to all who watch."""
        self.text += delta.tagged
        self.tokens += len(delta.token_ids)
        self.deltas.append(delta)
        self.unsaved.set()
        self.news.change()

    def mark(self, start: int, end: int) -> None:
        """Characters that were drafted, counted before stop texts are cut off."""
        if start == end:
            return
        if self.spans and self.spans[-1][1] == start:
            start = self.spans.pop()[0]
        self.spans.append((start, end))

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens so far."""
        return tuple(token for delta in self.deltas for token in delta.token_ids)

    @property
    def written(self) -> PartialAnswer:
        """The answer so far, with the one that it continues."""
        text = self.continued.text + self.text
        spans = [(start, min(end, len(text))) for start, end in self.spans if start < len(text)]
        return PartialAnswer(text, self.tokens, (*self.continued.spans, *spans))

    def counted(self, stats: Stats) -> Stats:
        """With counts of what arrived: an engine works on until its cancel arrives."""
        return replace(
            stats,
            emitted=self.tokens,
            passes=sum(bool(delta.token_ids) for delta in self.deltas),
            drafted=sum(delta.drafted for delta in self.deltas),
            accepted=sum(delta.accepted for delta in self.deltas),
        )


class AnswerSource(Protocol):
    """Where one answer comes from: the engine's process here, or an engine on another machine."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the context that the prompt takes; 0 where they are not known yet."""
        ...

    async def write(self, progress: Progress) -> Completion:
        """Add every delta to ``progress``; return the completion that describes them.

        Raises what kept the answer from starting.
        """
        ...

    def cancel(self) -> None:
        """End the answer soon; its completion still comes."""
        ...


class RunningReply:
    """Runs in a task of its own, with or without watchers."""

    def __init__(
        self,
        source: AnswerSource,
        continued: PartialAnswer,
        sink: AnswerSink,
        news: Observable | None = None,
    ) -> None:
        """``news`` changes with every delta and at the end; several replies may share one."""
        self._source, self._sink = source, sink
        self.news = news or Observable()
        self._progress = Progress(continued, news=self.news)
        self._task = asyncio.create_task(self._run(), name="reply")
        self._task.add_done_callback(self._end)

    @property
    def written(self) -> PartialAnswer:
        """The answer so far."""
        return self._progress.written

    @property
    def deltas(self) -> Sequence[Delta]:
        """All deltas so far."""
        return self._progress.deltas

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the context that the prompt takes."""
        return self._source.prompt_tokens

    @property
    def done(self) -> bool:
        """Whether the answer has been recorded, or could not start."""
        return self._task.done()

    @property
    def completion(self) -> Completion | None:
        """The whole answer; None before its end, and where the engine could not start."""
        done = self._task.done() and not self._task.cancelled()
        return self._task.result() if done and self._task.exception() is None else None

    def result(self) -> Completion:
        """The whole answer, once ``done``; raises what kept the engine from starting."""
        return self._task.result()

    def cancel(self) -> None:
        """End the answer soon; its completion still comes."""
        self._source.cancel()

    async def ended(self) -> None:
        """Wait until the answer has been recorded."""
        with suppress(Exception):  # raised to those who watch
            await asyncio.shield(self._task)

    def when_ended(self, call: Callable[[], object]) -> None:
        """Call ``call`` once the answer has been recorded."""
        self._task.add_done_callback(lambda _: call())

    async def watch(self) -> AsyncGenerator[PartialAnswer | Completion]:
        """The answer so far after every change, the completion last; leaving does not end it.

        Raises what kept the engine from starting.
        """
        while not self.done:
            seen = self.news.version
            yield self.written
            await self.news.changed(seen)
        yield self.result()

    async def _run(self) -> Completion:
        saving = asyncio.create_task(self._save_now_and_then(), name="save a reply")
        try:
            completion = await self._source.write(self._progress)
        finally:
            saving.cancel()
        return await self._recorded(completion)

    def _end(self, task: asyncio.Task[Completion]) -> None:
        if not task.cancelled():
            task.exception()  # read, or asyncio complains when nothing watches
        self.news.change()

    async def _save_now_and_then(self) -> None:
        try:
            while await self._progress.unsaved.wait():
                self._progress.unsaved.clear()
                await asyncio.to_thread(self._sink.save, self.written)
                await asyncio.sleep(SAVE_SECONDS)
        except HistoryError:  # the end of the answer reports it
            log.exception("a running answer could not be saved")

    async def _recorded(self, completion: Completion) -> Completion:
        try:
            await asyncio.to_thread(self._sink.finish, completion)
        except HistoryError as error:
            log.exception("an answer was not stored")
            reason = completion.error or f"this answer was not stored: {error}"
            return replace(completion, error=reason)
        return completion


Arrived = tuple[int, AnswerEvent]  # the index of an answer among its request's, and what is new


async def follow(
    replies: Sequence[RunningReply], quiet_seconds: float | None = None
) -> AsyncGenerator[Arrived | None]:
    """All that is new of replies that share their ``news``; closing it cancels them.

    Passes that came together and added the same are one delta. None where nothing came for
    ``quiet_seconds``. Raises what kept an answer from starting.
    """
    sent, running, news = [0] * len(replies), set(range(len(replies))), replies[0].news
    try:
        while running:
            seen = news.version
            for index in sorted(running):
                done = replies[index].done
                new = replies[index].deltas[sent[index] :]
                sent[index] += len(new)
                for _, alike in groupby(new, Delta.parts):
                    yield index, combined([*alike])
                if done:
                    running.discard(index)
                    yield index, replies[index].result()
            if running and news.version == seen:
                try:
                    async with asyncio.timeout(quiet_seconds):
                        await news.changed(seen)
                except TimeoutError:
                    yield None
    finally:
        for reply in replies:
            reply.cancel()
