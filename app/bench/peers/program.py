"""A program that answers prompts of token ids, in a process of its own that can be paused."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, and what ends its greedy answer."""

    ids: tuple[int, ...]
    max_tokens: int
    stop_tokens: frozenset[int]
    attempt: int = 0  # above 0: it was answered before, and must not be answered from memory


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of an answer that arrived together; without the stop token."""

    ids: tuple[int, ...]
    drafted: int = 0
    accepted: int = 0
    stopped: bool = False  # a stop token came with it


class Program(ABC):
    """One loaded model; ``start`` comes first and ``close`` last."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Of the process that computes; None before the start."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model; raises RequestFailed or ModelUnusable."""

    @abstractmethod
    def answer(self, mode: str, question: Question) -> AsyncGenerator[Chunk, None]:
        """The greedy answer in pieces, with nothing cached of the prompt; raises RequestFailed."""

    @abstractmethod
    async def close(self) -> None:
        """End the process."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the process run inside, and stop it afterwards: idle programs look for work, too."""
        _signal(self.pid, "SIGCONT")
        try:
            yield
        finally:
            _signal(self.pid, "SIGSTOP")

    def resume(self) -> None:
        """Let it run on, to be closed."""
        _signal(self.pid, "SIGCONT")

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that it had at once, the mapped file with it; None where it is not known."""
        try:
            lines = (PROC / str(self.pid) / "status").read_text().splitlines()
        except OSError:
            return None
        found = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return next((1024 * int(size) for size in found), None)


def _signal(pid: int | None, name: str) -> None:
    """Nothing where the system has no such signal, or the process has ended."""
    if pid is not None and hasattr(signal, name):
        with suppress(ProcessLookupError):
            os.kill(pid, getattr(signal, name))
