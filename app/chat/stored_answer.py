"""Where answers are kept: a message of a conversation that grows, or figures only."""

import logging
import threading
from dataclasses import dataclass, field

from app.errors import HistoryError
from app.history.records import AnswerFacts, Conditions, StoredMessage
from app.history.store import History
from app.request import Completion, PartialAnswer

log = logging.getLogger(__name__)


class NotStored:
    """For an answer that is only watched."""

    def save(self, written: PartialAnswer) -> None:
        """Keep nothing."""

    def finish(self, completion: Completion) -> None:
        """Keep nothing."""


@dataclass(frozen=True, slots=True)
class FiguresOnly:
    """For an answer outside of conversations: only its measurements are kept."""

    history: History
    conditions: Conditions
    conversation: str | None

    def save(self, written: PartialAnswer) -> None:
        """Keep nothing: a program keeps its own answers."""

    def finish(self, completion: Completion) -> None:
        """Keep the measurements; the answer is whole without them."""
        try:
            self.history.measurements.record(self.conditions, completion.stats, self.conversation)
        except HistoryError:
            log.exception("what an answer measured is not kept")


@dataclass(slots=True)
class StoredAnswer:
    """The message of one answer: added with its first words, rewritten while it grows.

    ``message`` is given when an earlier answer is continued.
    """

    history: History
    conditions: Conditions
    conversation: str
    question: str
    message: StoredMessage | None = None
    _finished: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def save(self, written: PartialAnswer) -> None:
        """Keep the answer so far, without a finish reason."""
        with self._lock:
            if not self._finished and written.text.strip():
                self.history.rewrite(self._row().id, written.text)

    def finish(self, completion: Completion) -> None:
        """Keep the whole answer, the facts shown under it, and its measurements."""
        with self._lock:
            self._finished = True
            row = self._row()
            about = facts(self.conditions.model, completion)
            self.history.rewrite(row.id, completion.text, completion.finish_reason, about)
        record = self.history.measurements.record
        record(self.conditions, completion.stats, self.conversation, row.id)

    def _row(self) -> StoredMessage:
        if self.message is None:
            add = self.history.add_message
            self.message = add(self.conversation, self.question, "assistant", "")
        return self.message


# Called in threads: ``save`` now and then, perhaps after ``finish``, which is called once.
AnswerSink = FiguresOnly | StoredAnswer | NotStored

OF_STATS = (
    "drafter", "why", "prompt_tokens", "emitted", "passes", "drafted", "accepted", "decode_seconds",
    "near_ties",
)  # fmt: skip


def facts(model: str, completion: Completion) -> AnswerFacts:
    """What is shown under an answer."""
    stats = completion.stats
    return AnswerFacts(
        model=model,
        leading=stats.runs[0].drafter if stats.runs else stats.drafter,
        **{name: getattr(stats, name) for name in OF_STATS},
        first_token_seconds=completion.first_token_seconds,
        speedup=completion.speedup,
        spans=completion.spans,
        error=completion.error,
    )
