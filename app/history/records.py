"""What history takes and gives back: plain frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from app.history.task_class import TaskClass, TemperatureClass
from engine.request import DepthCount, FinishReason


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as a list shows it."""

    id: str
    title: str
    created: str  # UTC, ISO 8601; for people, never for order
    pinned: bool = False
    system: str = ""  # the system prompt


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message; several with the same parent are versions of each other."""

    id: str
    conversation: str
    parent: str | None
    role: str  # system, user or assistant
    content: str
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """What is shown under an answer; seconds are wall time."""

    model: str
    drafter: str
    leading: str  # the drafter that brought most tokens; another one only under auto
    why: str
    prompt_tokens: int
    emitted: int
    passes: int
    drafted: int
    accepted: int
    decode_seconds: float
    first_token_seconds: float | None = None
    speedup: float | None = None  # over plain decoding, by measured cost
    spans: tuple[tuple[int, int], ...] = ()  # characters [start, end) that were drafted
    error: str | None = None
    near_ties: int = 0  # tokens that were decoded again as one row


@dataclass(frozen=True, slots=True)
class Preset:
    """A system prompt and sampling under a name; ``options`` by the names of ReplyOptions."""

    name: str
    system: str
    options: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a reply ran under; measurements made under other conditions say less or nothing."""

    model: str
    draft: str  # the draft model's name; empty without one
    machine: str
    temperature: TemperatureClass
    task: TaskClass


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One drafter's part of one stored reply, as it was written: nothing is checked yet."""

    reply: int  # grows with time
    days: float  # since it was written
    task: str
    machine: str
    drafter: str
    passes: int
    emitted: int
    seconds: float
    plain_seconds: float
    evaluated: Sequence[int]  # drafted tokens that were looked at, depth 1 first
    accepted: Sequence[int]  # of these
    shares: Sequence[float] = ()
    share_weight: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Which drafter ran under which conditions, in the words of the database."""

    model: str
    draft: str
    machine: str
    drafter: str
    task: str
    temperature: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """Everything that is stored of one origin, added up."""

    origin: Origin
    replies: int
    emitted: int
    seconds: float
    plain_seconds: float
    depths: tuple[DepthCount, ...]

    @property
    def pace(self) -> float | None:
        """How many times faster than plain decoding, over all tokens; None if nothing was timed."""
        if self.origin.drafter == "none":
            return 1.0  # by a cost that was measured beforehand it had been faster than itself
        timed = self.seconds > 0 and self.plain_seconds > 0
        return self.plain_seconds / self.seconds if timed else None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many rows a reset removed."""

    replies: int
    runs: int


def utc_now() -> str:
    """This second, as all tables write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
