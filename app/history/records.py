"""What history gives back: plain frozen values."""

from dataclasses import dataclass

from engine.request import DepthCount, FinishReason


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as a list shows it."""

    id: str
    title: str
    created: str  # UTC, ISO 8601; for people, never for order


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
class Acceptance:
    """What all replies of one model with one drafter measured together."""

    depths: tuple[DepthCount, ...]  # depth 1 first
    replies: int
    emitted: int
    passes: int
    drafted: int
    accepted: int
    decode_seconds: float
