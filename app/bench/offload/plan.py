"""What one measuring process is asked for, and what it answers: plain values that travel as JSON."""

from dataclasses import dataclass

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """One lane at one temperature."""

    drafter: str
    temperature: float
    prompts: tuple[tuple[int, ...], ...]  # token ids
    tokens: int


@dataclass(frozen=True, slots=True)
class Order:
    """A model, the memory it may take, and what to decode with it."""

    folder: str
    draft_folder: str
    resident: int | None  # bytes; None: all of it
    stop_tokens: tuple[int, ...]
    tasks: tuple[Task, ...]
    rounds: int  # of comparing the disk's own rate with streaming's; 0: none


@dataclass(frozen=True, slots=True)
class Lane:
    """What came of one task."""

    drafter: str
    temperature: float
    ids: tuple[tuple[int, ...], ...]  # by prompt
    passes: int
    drafted: int
    seconds: float  # of decoding, prompts not counted

    @property
    def tokens(self) -> int:
        """Of all answers."""
        return sum(len(answer) for answer in self.ids)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """What one process measured; bytes and seconds."""

    lanes: tuple[Lane, ...]
    disk: tuple[float, ...] = ()  # bytes per second of sequential direct reads, by round
    ordinary: tuple[float, ...] = ()  # the same into memory of ordinary pages
    streaming: tuple[float, ...] = ()  # bytes per second of passes
    streamed: int = 0  # bytes of every pass
    held: int = 0  # bytes of layers that stayed
    widest: int = 0  # rows
    knots: tuple[tuple[int, float], ...] = ()  # rows -> seconds of a pass
    before: int = 0  # peak memory of the process with its libraries, before the model
    peak: int = 0  # at its end
