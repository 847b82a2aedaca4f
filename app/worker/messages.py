"""What crosses the pipe between the app and the engine's process: plain frozen values."""

from dataclasses import dataclass

from engine.request import Calibration, Event, GenerationRequest, ModelFacts


@dataclass(frozen=True, slots=True)
class Submit:
    """Down: start this request; ``key`` names it in everything that follows."""

    key: int
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """Down: end this request soon; its Done still comes."""

    key: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Down: leave the loop and end the process."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Up: the model is loaded; the first message of a good start."""

    facts: ModelFacts


@dataclass(frozen=True, slots=True)
class Measured:
    """Up: what the load left to measure."""

    calibration: Calibration


@dataclass(frozen=True, slots=True)
class Unusable:
    """Up: the model cannot be loaded, for a reason that is the model's."""

    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Up: events of requests in their order, each with its request's key."""

    events: tuple[tuple[int, Event], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Up: the engine does not take this request; ``overflow`` is (needed, holds) in tokens."""

    key: int
    message: str
    overflow: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Up: this request met an unexpected error; the others continue."""

    key: int
    message: str
    details: str  # for the log


@dataclass(frozen=True, slots=True)
class Broken:
    """Up: an unexpected error; the process ends after it."""

    message: str
    details: str  # for the log


@dataclass(frozen=True, slots=True)
class Logged:
    """Up: a log record of the engine's process, for the log of the app."""

    level: int
    logger: str
    text: str


Down = Submit | Cancel | Stop
Up = Ready | Measured | Unusable | Progress | Refused | Failed | Broken | Logged
