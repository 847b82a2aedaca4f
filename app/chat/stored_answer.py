"""Where answers are kept: a row of a conversation that grows, or figures alone."""

import threading
from dataclasses import dataclass, field

from app.history.records import AnswerFacts, Conditions, StoredMessage
from app.history.store import History
from app.request import Completion, PartialAnswer


@dataclass(frozen=True, slots=True)
class FiguresOnly:
    """An answer of no conversation: only what it measured is kept."""

    history: History
    conditions: Conditions
    session: str | None

    def save(self, written: PartialAnswer) -> None:
        """Nothing: a program keeps its own answers."""

    def finish(self, report: Completion) -> None:
        """Keep what was measured."""
        self.history.measurements.record(self.conditions, report.stats, self.session)


@dataclass(slots=True)
class StoredAnswer:
    """The message of one answer: inserted with its first words, rewritten while it grows.

    ``message`` is given when an earlier answer is continued.
    """

    history: History
    conditions: Conditions
    conversation: str
    asked: str
    message: StoredMessage | None = None
    _finished: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def save(self, written: PartialAnswer) -> None:
        """Keep what there is so far, without a finish reason."""
        with self._lock:
            if not self._finished and written.text.strip():
                self.history.rewrite(self._row().id, written.text)

    def finish(self, report: Completion) -> None:
        """Keep the whole answer, what is told under it, and what it measured."""
        with self._lock:
            self._finished = True
            row = self._row()
            told = facts(self.conditions.model, report)
            self.history.rewrite(row.id, report.text, report.finish_reason, told)
        record = self.history.measurements.record
        record(self.conditions, report.stats, self.conversation, row.id)

    def _row(self) -> StoredMessage:
        if self.message is None:
            add = self.history.add_message
            self.message = add(self.conversation, self.asked, "assistant", "")
        return self.message


def facts(model: str, report: Completion) -> AnswerFacts:
    """What is told under an answer, from its report."""
    stats = report.stats
    return AnswerFacts(
        model=model,
        drafter=stats.drafter,
        leading=stats.runs[0].drafter if stats.runs else stats.drafter,
        why=stats.why,
        prompt_tokens=stats.prompt_tokens,
        emitted=stats.emitted,
        passes=stats.passes,
        drafted=stats.drafted,
        accepted=stats.accepted,
        decode_seconds=stats.decode_seconds,
        first_token_seconds=report.first_token_seconds,
        speedup=report.speedup,
        spans=report.spans,
        error=report.error,
    )
