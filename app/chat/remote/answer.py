"""An answer of another engine: its events in, deltas and one completion out."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from app.chat.remote.chunks import Calls, Choice, Chunk, Timings, Usage, Words, logprobs_of
from app.chat.reply import Progress
from app.errors import RemoteFailed
from app.request import Completion, Delta
from app.text.reasoning.tags import REASONING_ENDS, REASONING_STARTS
from engine.request import DepthCount, DrafterRun, FinishReason, Stats

REMOTE = "remote"  # the drafter of an answer whose drafts another engine made
_ABORTED = ("abort", "error")  # finish reasons of answers that are not whole
LONGEST_ANSWER = 8 * 2**20  # characters: more than any context has


@dataclass(frozen=True, slots=True)
class Drafts:
    """What an engine tells of its own speculative decoding; zeros where it tells nothing."""

    drafted: int = 0
    accepted: int = 0
    passes: int = 0
    of_all: bool = False  # its counters, which other requests have moved, too


class Wire(Protocol):
    """What an answer needs of its engine."""

    def events(self) -> AsyncGenerator[Mapping[str, Any]]:
        """Ask, and yield the events; raises RemoteFailed, ContextOverflow."""
        ...

    async def counters(self) -> Drafts | None:
        """Its counters of drafts now; None where it has none."""
        ...

    def broken(self, what: str) -> RemoteFailed:
        """The error of an answer that is not as it should be."""
        ...


@dataclass(slots=True)
class RemoteAnswer:
    """The AnswerSource of a model that runs elsewhere."""

    wire: Wire
    words: Words
    where: str  # the engine, in words
    prompt_tokens: int = 0  # once the engine has told
    _progress: Progress | None = None
    _reading: asyncio.Task[None] | None = None
    _cancelled: bool = False
    _calls: Calls = field(default_factory=Calls)
    _reasons: bool = False  # its reasoning has begun, and not ended
    _finish: str | None = None
    _stopped_by: str = ""
    _usage: Usage | None = None
    _timings: Timings | None = None
    _drafted: Drafts | None = None  # as the answer itself tells
    _first: float | None = None  # clock at the first token
    _length: int = 0

    def cancel(self) -> None:
        """End the answer soon; its completion still comes."""
        self._cancelled = True
        if self._reading is not None:
            self._reading.cancel()

    async def write(self, progress: Progress) -> Completion:
        """Add every delta to ``progress``; return the completion that describes them.

        Raises RemoteFailed, ContextOverflow where nothing of the answer has come.
        """
        before, error = await self._counted(), None
        self._progress, started = progress, time.monotonic()
        reading = asyncio.create_task(self._read(progress), name="read a remote answer")
        self._reading = reading
        if self._cancelled:
            reading.cancel()
        try:
            await reading
        except asyncio.CancelledError:
            if not self._cancelled:
                reading.cancel()
                raise
        except RemoteFailed as failed:
            if not progress.deltas:
                raise
            error = failed
        self._end_reasoning(progress)
        ended = time.monotonic()
        stats = self._stats(started, ended, await self._drafts(before))
        return self._completion(progress, stats, error)

    async def _read(self, progress: Progress) -> None:
        async with aclosing(self.wire.events()) as events:
            async for event in events:
                chunk = self._chunk(event)
                self._usage = chunk.usage or self._usage
                self._timings = chunk.timings or self._timings
                if chunk.drafts is not None:
                    self._drafted = Drafts(*chunk.drafts)
                for choice in chunk.choices or ():
                    if not choice.index:  # no other was asked for
                        self._take(choice, progress)
        if self._finish is None:
            raise self.wire.broken("broke the answer off before its end")

    def _chunk(self, event: Mapping[str, Any]) -> Chunk:
        try:
            chunk = Chunk.model_validate(event)
        except ValidationError as error:
            raise self.wire.broken("sent an event that is not in OpenAI's form") from error
        if chunk.error:
            raise self.wire.broken(f"ended the answer: {chunk.error}")
        return chunk

    def _take(self, choice: Choice, progress: Progress) -> None:
        self._finish = choice.finish_reason or self._finish
        if self._finish in _ABORTED:
            raise self.wire.broken(f"ended the answer ({self._finish})")
        self._stopped_by = choice.stopped_by or self._stopped_by
        calls = self._calls.parts((choice.delta and choice.delta.tool_calls) or ())
        logprobs = logprobs_of(choice.logprobs, self.words)
        reasoning, said = choice.reasoning, choice.said
        if not (reasoning or said or calls or logprobs):
            return
        self._length += len(reasoning) + len(said) + sum(len(one.arguments) for one in calls)
        if self._length > LONGEST_ANSWER:
            raise self.wire.broken(f"sent more than {LONGEST_ANSWER:,} characters")
        if self._first is None:
            self._first = time.monotonic()
        progress.arrive()
        progress.tokens += 1  # about: most engines send one token at a time
        tagged = self._tagged(reasoning, said)
        progress.add(Delta(reasoning, said, calls, tagged, logprobs=logprobs))

    def _tagged(self, reasoning: str, said: str) -> str:
        """The same as the one text that is stored."""
        start = REASONING_STARTS if reasoning and not self._reasons else ""
        self._reasons = self._reasons or bool(reasoning)
        end = REASONING_ENDS if said and self._reasons else ""
        self._reasons = self._reasons and not said
        return start + reasoning + end + said

    def _end_reasoning(self, progress: Progress) -> None:
        if self._reasons and self._finish is not None:
            self._reasons = False
            progress.add(Delta(tagged=REASONING_ENDS))

    async def _counted(self) -> Drafts | None:
        """The engine's counters, without which an answer is whole, too."""
        with suppress(RemoteFailed):
            return await self.wire.counters()
        return None

    async def _drafts(self, before: Drafts | None) -> Drafts:
        if self._drafted is not None:
            return self._drafted
        after = None if before is None or self._cancelled else await self._counted()
        if before is None or after is None:
            return Drafts()
        names = ("drafted", "accepted", "passes")
        counts = {name: max(0, getattr(after, name) - getattr(before, name)) for name in names}
        return Drafts(**counts, of_all=True)

    def _stats(self, started: float, ended: float, drafts: Drafts) -> Stats:
        usage, timings = self._usage or Usage(), self._timings or Timings()
        first = ended if self._first is None else self._first
        self.prompt_tokens = usage.prompt_tokens
        emitted = usage.completion_tokens or (self._progress.tokens if self._progress else 0)
        prompt = (first - started) if timings.prompt_ms is None else timings.prompt_ms / 1000
        seconds = (ended - first) if timings.predicted_ms is None else timings.predicted_ms / 1000
        depths = (DepthCount(drafts.drafted, drafts.accepted),) if drafts.drafted else ()
        run = DrafterRun(
            REMOTE, drafts.passes, emitted, drafts.drafted, drafts.accepted, seconds, 0.0, depths
        )
        return Stats(
            drafter=REMOTE,
            why=self.where + (", whose drafts are those of all its requests" * drafts.of_all),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=min(usage.cached, usage.prompt_tokens),
            emitted=emitted,
            passes=drafts.passes,
            drafted=drafts.drafted,
            accepted=drafts.accepted,
            depths=(),
            prompt_seconds=prompt,
            decode_seconds=seconds,
            runs=(run,),
        )

    def _completion(
        self, progress: Progress, stats: Stats, error: RemoteFailed | None
    ) -> Completion:
        return Completion(
            text=progress.written.text,
            token_ids=(),
            finish_reason=self._reason(error),
            stats=stats,
            error=None if error is None else str(error),
            code=None if error is None else error.code,
            first_token_seconds=progress.first_token_seconds,
            logprobs=tuple(one for delta in progress.deltas for one in delta.logprobs),
            stopped_by=self._stopped_by,
            reasoning_tokens=(self._usage or Usage()).reasoned,
            calls=len(self._calls),
        )

    def _reason(self, error: RemoteFailed | None) -> FinishReason:
        if error is not None:
            return FinishReason.ERROR
        if self._cancelled and self._finish is None:
            return FinishReason.CANCELLED
        return FinishReason.LENGTH if self._finish == "length" else FinishReason.STOP
