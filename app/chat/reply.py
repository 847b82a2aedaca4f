"""One running answer: events of the engine in; pieces, what there is so far, and one report out."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from app.errors import HistoryError, RequestFailed, WorkerCrashed
from app.request import Completion, Delta, PartialAnswer, Piece
from app.text.detokenizer import StopFilter, TextStream
from app.text.reasoning.count import ReasoningCount
from app.worker.worker import Generation
from engine.request import Done, FinishReason, Logprob, Stats, Tokens

log = logging.getLogger(__name__)

SAVE_SECONDS = 0.5  # a process that is killed loses at most what was written since


class AnswerSink(Protocol):
    """Where an answer is kept; called in threads, ``save`` perhaps later than ``finish``."""

    def save(self, written: PartialAnswer) -> None:
        """What there is so far, now and then."""
        ...

    def finish(self, report: Completion) -> None:
        """The whole answer, once."""
        ...


@dataclass(slots=True)
class _Progress:
    """What has been received so far; enough for a report when the engine cannot give one."""

    begun: PartialAnswer
    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    first_token_seconds: float | None = None

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        self.ids += piece.token_ids
        self.logprobs += piece.logprobs
        self.passes += bool(piece.token_ids)
        self.drafted += piece.drafted
        self.accepted += piece.accepted

    def mark(self, start: int, end: int) -> None:
        """Characters that were drafted, counted before stop texts are cut off."""
        if start == end:
            return
        if self.spans and self.spans[-1][1] == start:
            start = self.spans.pop()[0]
        self.spans.append((start, end))

    @property
    def written(self) -> PartialAnswer:
        text = self.begun.text + self.text
        spans = [(start, min(end, len(text))) for start, end in self.spans if start < len(text)]
        return PartialAnswer(text, len(self.ids), (*self.begun.spans, *spans))


class RunningReply:
    """Runs in a task of its own: it goes on when nobody watches, and anybody may watch again."""

    def __init__(
        self,
        generation: Generation,
        detokenizer: TextStream,
        stops: StopFilter,
        unfinished: Stats,
        keeper: AnswerSink,
        begun: PartialAnswer | None = None,
    ) -> None:
        """``unfinished`` describes an answer that broke off; ``begun`` is what it continues."""
        self._generation, self._detokenizer, self._stops = generation, detokenizer, stops
        self._unfinished, self._keeper = unfinished, keeper
        self._progress = _Progress(begun or PartialAnswer())
        self._thought = self._progress.begun.thought  # until the first piece has told it
        self._thinking = ReasoningCount(self._progress.begun.text + self._thought)
        # with what the stop filter holds back
        self._length = len(self._progress.begun.text + self._thought)
        self._asked_at = time.monotonic()
        self._out: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._changed, self._unsaved = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="reply")
        self._task.add_done_callback(self._end)

    @property
    def written(self) -> PartialAnswer:
        """What there is so far."""
        return self._progress.written

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the context that were taken before the answer."""
        return self._unfinished.prompt_tokens

    @property
    def report(self) -> Completion | None:
        """How it went; None before the end, and where the engine could not begin."""
        done = self._task.done() and not self._task.cancelled()
        return self._task.result() if done and self._task.exception() is None else None

    def cancel(self) -> None:
        """End the answer soon; its report still comes."""
        self._generation.cancel()

    async def ended(self) -> None:
        """Wait until the answer has been recorded."""
        with suppress(Exception):  # told to whoever watches
            await asyncio.shield(self._task)

    def when_ended(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` once the answer has been recorded."""
        self._task.add_done_callback(lambda _: tell())

    async def watch(self) -> AsyncGenerator[PartialAnswer | Completion]:
        """What there is whenever that changed, the report last; leaving does not end the answer.

        Raises what kept the engine from beginning.
        """
        while not self._task.done():
            changed = self._changed
            yield self.written
            await changed.wait()
        yield self._task.result()

    async def deltas(self) -> AsyncGenerator[Delta]:
        """Pieces, then the report; closing it cancels the answer."""
        try:
            while piece := await self._out.get():
                yield piece
            yield await asyncio.shield(self._task)
        finally:
            self.cancel()

    async def _run(self) -> Completion:
        saving = asyncio.create_task(self._save_now_and_then(), name="save a reply")
        try:
            report = await self._follow()
        finally:
            saving.cancel()
        return await self._recorded(report)

    def _end(self, task: asyncio.Task[Completion]) -> None:
        if not task.cancelled():
            task.exception()  # looked at, or asyncio complains when nobody watches
        self._out.put_nowait(None)
        self._changed.set()

    async def _follow(self) -> Completion:
        """Every event turned into pieces; the report that describes them."""
        try:
            async for event in self._generation:
                match event:
                    case Tokens():
                        self._take(event)
                    case Done():
                        report = self._report(event.reason, event.stats, event.error)
                        return replace(report, code=event.code if report.error else None)
        except (WorkerCrashed, RequestFailed) as error:
            return self._report(FinishReason.ERROR, self._counted(self._unfinished), str(error))
        raise AssertionError("a generation ends with Done")

    def _take(self, event: Tokens) -> None:
        if self._stops.hit:  # the engine has been told, these were under way
            return
        if self._progress.first_token_seconds is None:
            self._progress.first_token_seconds = time.monotonic() - self._asked_at
        said, start, drafted = "", self._length, self._length
        for taken, token in enumerate(event.ids, 1):
            text = self._detokenizer.feed((token,))
            self._length += len(text)
            self._thinking.add(text)
            drafted = self._length if taken <= event.accepted else drafted
            said += self._stops.feed(text)
            if self._stops.hit:  # what was drafted behind it is no part of the answer
                break
        self._progress.mark(start, drafted)
        accepted, told = min(event.accepted, taken), event.logprobs[:taken]
        self._emit(Piece(said, event.ids[:taken], event.drafted, accepted, told))
        if self._stops.hit:
            self._generation.cancel()

    def _emit(self, piece: Piece) -> None:
        if self._thought:
            piece, self._thought = replace(piece, text=self._thought + piece.text), ""
        self._progress.add(piece)
        self._out.put_nowait(piece)
        self._unsaved.set()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _report(self, reason: FinishReason, stats: Stats, error: str | None) -> Completion:
        rest = self._stops.feed(self._detokenizer.end()) + self._stops.end()
        if rest:
            self._emit(Piece(rest, (), 0, 0))
        if self._stops.hit:
            reason, error = FinishReason.STOP, None
            stats = self._counted(stats)
        progress, written = self._progress, self.written
        ids, first = tuple(progress.ids), progress.first_token_seconds
        told = tuple(progress.logprobs)
        return Completion(
            written.text, ids, reason, stats, error, first, written.spans,
            logprobs=told, stopped_by=self._stops.found, thought_tokens=self._thinking.tokens,
        )  # fmt: skip

    def _counted(self, stats: Stats) -> Stats:
        """With counts of what was received: an engine goes on until it hears that it shall not."""
        return replace(
            stats,
            emitted=len(self._progress.ids),
            passes=self._progress.passes,
            drafted=self._progress.drafted,
            accepted=self._progress.accepted,
        )

    async def _save_now_and_then(self) -> None:
        try:
            while await self._unsaved.wait():
                self._unsaved.clear()
                await asyncio.to_thread(self._keeper.save, self.written)
                await asyncio.sleep(SAVE_SECONDS)
        except HistoryError:  # the end will tell
            log.exception("a running answer could not be saved")

    async def _recorded(self, report: Completion) -> Completion:
        try:
            await asyncio.to_thread(self._keeper.finish, report)
        except HistoryError as error:
            log.exception("an answer was not stored")
            return replace(report, error=report.error or f"this answer was not stored: {error}")
        return report
