"""Totals over all answers since the start."""

from collections import Counter
from dataclasses import dataclass, field

from app.request import Completion
from engine.request import DepthCount, DrafterRun, FinishReason, summed


@dataclass(slots=True)
class DrafterTotals:
    """What one drafter did in all answers."""

    passes: int = 0
    tokens: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0  # of plain decoding for the same tokens

    def add(self, run: DrafterRun) -> None:
        """Add one answer."""
        self.passes += run.passes
        self.tokens += run.emitted
        self.seconds += run.seconds
        self.plain_seconds += run.plain_seconds


@dataclass(slots=True)
class Totals:
    """Counts and seconds that only grow."""

    answers: Counter[FinishReason] = field(default_factory=Counter)
    read: int = 0  # prompt tokens that were read, not found in a cache
    cached: int = 0  # prompt tokens found in a cache
    emitted: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    depths: tuple[DepthCount, ...] = ()  # depth 1 first
    by_drafter: dict[str, DrafterTotals] = field(default_factory=dict)

    def add(self, completion: Completion) -> None:
        """Add one answer, however it ended."""
        stats = completion.stats
        self.answers[completion.finish_reason] += 1
        self.read += stats.prompt_tokens - stats.cached_tokens
        self.cached += stats.cached_tokens
        self.emitted += stats.emitted
        self.passes += stats.passes
        self.drafted += stats.drafted
        self.accepted += stats.accepted
        self.prompt_seconds += stats.prompt_seconds
        self.decode_seconds += stats.decode_seconds
        self.depths = summed((self.depths, stats.depths))
        for run in stats.runs:
            self.by_drafter.setdefault(run.drafter, DrafterTotals()).add(run)
