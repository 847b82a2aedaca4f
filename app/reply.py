"""One running answer: events of the engine in, pieces of text and one report out."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from app.answer_text import Detokenizer, StopFilter
from app.errors import HistoryError, RequestFailed, WorkerCrashed
from app.turn import Delta, Piece, Report
from app.worker import Generation
from engine.request import Done, FinishReason, Stats, Tokens

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Progress:
    """What has been received so far; enough for a report when the engine cannot give one."""

    text: str = ""
    ids: tuple[int, ...] = ()
    passes: int = 0
    drafted: int = 0
    accepted: int = 0

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        self.ids += piece.token_ids
        self.passes += bool(piece.token_ids)
        self.drafted += piece.drafted
        self.accepted += piece.accepted


class RunningReply:
    """Runs in a task of its own, so that an answer that nobody reads any more still ends well."""

    def __init__(
        self,
        generation: Generation,
        detokenizer: Detokenizer,
        stops: StopFilter,
        unfinished: Stats,
        record: Callable[[Report], None],
    ) -> None:
        """``unfinished`` describes an answer that broke off; ``record`` runs once, in a thread."""
        self._generation, self._detokenizer, self._stops = generation, detokenizer, stops
        self._unfinished, self._record = unfinished, record
        self._progress = _Progress()
        self._out: asyncio.Queue[Delta | Exception] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(), name="reply")

    def cancel(self) -> None:
        """End the answer soon; its report still comes."""
        self._generation.cancel()

    async def ended(self) -> None:
        """Wait until the answer has been recorded."""
        with suppress(Exception):  # told to whoever reads the deltas
            await asyncio.shield(self._task)

    def when_ended(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` once the answer has been recorded."""
        self._task.add_done_callback(lambda _: tell())

    async def deltas(self) -> AsyncGenerator[Delta]:
        """Pieces, then the report; closing it cancels the answer."""
        try:
            while True:
                delta = await self._out.get()
                if isinstance(delta, Exception):
                    raise delta
                yield delta
                if isinstance(delta, Report):
                    return
        finally:
            self.cancel()

    async def _run(self) -> None:
        try:
            self._out.put_nowait(await self._recorded(await self._follow()))
        except Exception as error:  # noqa: BLE001 - raised where the deltas are read
            self._out.put_nowait(error)

    async def _follow(self) -> Report:
        """Every event turned into pieces; the report that describes them."""
        try:
            async for event in self._generation:
                match event:
                    case Tokens():
                        self._take(event)
                    case Done():
                        return self._report(event.reason, event.stats, event.error)
        except (WorkerCrashed, RequestFailed) as error:
            return self._report(FinishReason.ERROR, self._counted(), str(error))
        raise AssertionError("a generation ends with Done")

    def _take(self, event: Tokens) -> None:
        if self._stops.hit:  # the engine has been told, these were under way
            return
        text = self._stops.feed(self._detokenizer.feed(event.ids))
        self._emit(Piece(text, event.ids, event.drafted, event.accepted))
        if self._stops.hit:
            self._generation.cancel()

    def _emit(self, piece: Piece) -> None:
        self._progress.add(piece)
        self._out.put_nowait(piece)

    def _report(self, reason: FinishReason, stats: Stats, error: str | None) -> Report:
        rest = self._stops.feed(self._detokenizer.end()) + self._stops.end()
        if rest:
            self._emit(Piece(rest, (), 0, 0))
        if self._stops.hit:
            reason, error = FinishReason.STOP, None
        return Report(self._progress.text, self._progress.ids, reason, stats, error)

    def _counted(self) -> Stats:
        return replace(
            self._unfinished,
            emitted=len(self._progress.ids),
            passes=self._progress.passes,
            drafted=self._progress.drafted,
            accepted=self._progress.accepted,
        )

    async def _recorded(self, report: Report) -> Report:
        try:
            await asyncio.to_thread(self._record, report)
        except HistoryError as error:
            log.exception("an answer was not stored")
            return replace(report, error=report.error or f"this answer was not stored: {error}")
        return report
