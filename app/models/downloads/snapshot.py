"""What is seen of a download from outside: frozen values."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a download stands."""

    QUEUED = "queued"
    WAITING = "waiting"  # another process downloads the same model
    CHECKING = "checking"  # what is here already is hashed
    DOWNLOADING = "downloading"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"  # it can be resumed
    CANCELLED = "cancelled"


ENDED = frozenset({State.PAUSED, State.DONE, State.FAILED, State.CANCELLED})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One download at one moment; sizes in bytes, speed in bytes per second."""

    name: str
    state: State
    done: int
    total: int
    speed: float = 0.0
    seconds_left: float | None = None  # None while nothing comes
    file: str | None = None  # the one in work
    error: str | None = None  # one sentence, with FAILED
    gated: bool = False  # it failed for want of a token, or of a person's agreement

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / self.total if self.total else 1.0
