"""One running answer: the engine's events in; deltas, the answer so far, and one completion out."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby

from app.chat.stored_answer import AnswerSink
from app.errors import HistoryError, RequestFailed, WorkerCrashed
from app.observable import Observable
from app.request import (
    AnswerEvent,
    Completion,
    Delta,
    PartialAnswer,
    PredictionUsage,
    combined,
)
from app.text.output_parser import OutputParser
from app.text.reasoning.tags import AnswerStream
from app.worker.worker import Generation
from engine.request import Done, Echo, FinishReason, GenerationRequest, Stats, Tokens

log = logging.getLogger(__name__)

SAVE_SECONDS = 0.5  # a killed process loses at most what came since


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """What turns the tokens of one answer into deltas."""

    stream: AnswerStream
    parser: OutputParser
    continued: PartialAnswer  # the stored answer that this one continues

    def token(self, token: int) -> None:
        """Read one token."""
        self.parser.feed(self.stream.feed((token,)))

    def end(self, *, cut: bool) -> Delta:
        """What was held back; ``cut``: the model did not end the answer."""
        self.parser.end(self.stream.end(), cut=cut)
        return self.parser.delta()


@dataclass(slots=True)
class _Progress:
    """The answer so far; enough for a completion when the engine cannot give one."""

    continued: PartialAnswer
    text: str = ""  # tagged
    tokens: int = 0
    deltas: list[Delta] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    first_token_seconds: float | None = None

    def mark(self, start: int, end: int) -> None:
        """Characters that were drafted, counted before stop texts are cut off."""
        if start == end:
            return
        if self.spans and self.spans[-1][1] == start:
            start = self.spans.pop()[0]
        self.spans.append((start, end))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token for delta in self.deltas for token in delta.token_ids)

    @property
    def written(self) -> PartialAnswer:
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


class RunningReply:
    """Runs in a task of its own, with or without watchers."""

    def __init__(
        self,
        generation: Generation,
        request: GenerationRequest,
        reader: AnswerReader,
        sink: AnswerSink,
        news: Observable | None = None,
    ) -> None:
        """``news`` changes with every delta and at the end; several replies may share one."""
        self._generation, self._request = generation, request
        self._reader, self._sink = reader, sink
        self._progress = _Progress(reader.continued)
        self._offset = len(reader.continued.text)
        self._started_at = time.monotonic()
        self._unsaved = asyncio.Event()
        self.news = news or Observable()
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
        return len(self._request.prompt)

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
        self._generation.cancel()

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
            completion = await self._follow()
        finally:
            saving.cancel()
        return await self._recorded(completion)

    def _end(self, task: asyncio.Task[Completion]) -> None:
        if not task.cancelled():
            task.exception()  # read, or asyncio complains when nothing watches
        self.news.change()

    async def _follow(self) -> Completion:
        """Turn every event into a delta; return the completion that describes them."""
        try:
            async for event in self._generation:
                match event:
                    case Tokens():
                        self._take(event)
                    case Echo():
                        self._emit(Delta(echo=event.logprobs))
                    case Done():
                        found = self._completion(event.reason, event.stats, event.error)
                        return replace(found, code=event.code if found.error else None)
        except (WorkerCrashed, RequestFailed) as error:
            stats = self._progress.counted(_unfinished(self._request))
            return self._completion(FinishReason.ERROR, stats, str(error))
        raise AssertionError("a generation ends with Done")

    def _take(self, event: Tokens) -> None:
        parser = self._reader.parser
        if parser.stopped:  # the cancel is on its way to the engine
            return
        if self._progress.first_token_seconds is None:
            self._progress.first_token_seconds = time.monotonic() - self._started_at
        start = drafted = self._offset + parser.length
        for taken, token in enumerate(event.ids, 1):
            self._reader.token(token)
            drafted = self._offset + parser.length if taken <= event.accepted else drafted
            if parser.stopped:  # what was drafted after it is no part of the answer
                break
        self._progress.mark(start, drafted)
        accepted = min(event.accepted, taken)
        logprobs = event.logprobs[:taken]
        self._emit(parser.delta(event.ids[:taken], event.drafted, accepted, logprobs))
        if parser.stopped:
            self._generation.cancel()

    def _emit(self, delta: Delta) -> None:
        self._progress.text += delta.tagged
        self._progress.tokens += len(delta.token_ids)
        self._progress.deltas.append(delta)
        self._unsaved.set()
        self.news.change()

    def _completion(self, reason: FinishReason, stats: Stats, error: str | None) -> Completion:
        rest = self._reader.end(cut=reason is not FinishReason.STOP)
        if rest != Delta():
            self._emit(rest)
        parser, progress = self._reader.parser, self._progress
        if parser.stopped:
            reason, error = FinishReason.STOP, None
            stats = progress.counted(stats)
        written, ids, predicted = progress.written, progress.ids, self._request.prediction
        return Completion(
            text=written.text,
            token_ids=ids,
            finish_reason=reason,
            stats=stats,
            error=error,
            first_token_seconds=progress.first_token_seconds,
            spans=written.spans,
            prediction=compared(predicted, ids) if predicted else None,
            logprobs=tuple(one for delta in progress.deltas for one in delta.logprobs),
            stopped_by=parser.stopped_by,
            reasoning_tokens=parser.reasoning_tokens,
            calls=parser.calls,
        )

    async def _save_now_and_then(self) -> None:
        try:
            while await self._unsaved.wait():
                self._unsaved.clear()
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


def compared(prediction: Sequence[int], answer: Sequence[int]) -> PredictionUsage:
    """How many tokens of ``prediction`` are in ``answer`` in the same order, and how many are not.

    The longest common subsequence, with one bit for each position of the prediction (Hyyro 2004): a
    thousand tokens against a thousand take a millisecond, 32 thousand a quarter second.
    """
    places: dict[int, int] = {}
    for at, token in enumerate(prediction):
        places[token] = places.get(token, 0) | 1 << at
    every = (1 << len(prediction)) - 1
    open_ = every  # a bit is cleared where one more token is matched
    for token in answer:
        here = open_ & places.get(token, 0)
        open_ = (open_ + here | open_ - here) & every
    accepted = len(prediction) - open_.bit_count()
    return PredictionUsage(accepted, len(prediction) - accepted)
