"""A benchmark's result as it is kept and shared: one JSON object, no prompt and no answer in it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from app.bench.compare.benchmark import Benchmark
from app.bench.lanes import Lane
from app.bench.measure import Measurement, Sample
from app.bench.summary import agreeing, counts_of, passes_by_drafter, rate_of
from app.chat.loaded_model import LoadedModel
from app.placement.machine import machine_name
from engine.request import tokens_per_pass

VERSION = 1


class Figures(BaseModel):
    """One lane on some questions; speed-up is of rates over plain's on the same questions."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    tokens: int
    seconds: float  # of decoding
    passes: int
    drafted: int
    accepted: int
    answers: int
    identical: int  # answers that are plain's, token by token
    speedup: float | None  # None for plain, and where nothing was timed

    @property
    def rate(self) -> float:
        """Tokens per second; 0 when nothing was timed."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """How far one pass went; 0 when none ran."""
        return tokens_per_pass(self.passes, self.accepted, self.tokens, self.answers)


class LaneRecord(BaseModel):
    """One lane, over all questions and by category."""

    model_config = ConfigDict(extra="forbid")

    drafter: str
    all: Figures
    categories: dict[str, Figures]
    passes_by_drafter: dict[str, int]  # several only for auto


class BenchmarkRecord(BaseModel):
    """Model, machine, conditions, lanes."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(default=VERSION, ge=1, le=VERSION)
    date: str  # UTC, ISO 8601
    model: str
    parameters: int
    machine: str  # processor, cores, device, number format
    questions: int
    skipped: int  # past the model's context
    max_tokens: int
    lanes: list[LaneRecord]
    refused: dict[str, str]  # drafter -> why it cannot run

    @property
    def best(self) -> LaneRecord | None:
        """The lane with the largest speed-up; None when there is none."""
        timed = [lane for lane in self.lanes if lane.all.speedup is not None]
        return max(timed, key=lambda lane: lane.all.speedup or 0.0, default=None)

    @property
    def identical(self) -> bool:
        """Whether every answer of every lane is plain's."""
        return all(lane.all.identical == lane.all.answers for lane in self.lanes)


def record(benchmark: Benchmark, measured: Measurement, model: LoadedModel) -> BenchmarkRecord:
    """What was measured, as it is kept."""
    return BenchmarkRecord(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        model=model.entry.name,
        parameters=model.facts.parameters,
        machine=machine_name(model.spec.device, model.spec.dtype),
        questions=len(benchmark.questions) - benchmark.skipped,
        skipped=benchmark.skipped,
        max_tokens=benchmark.size.max_tokens,
        lanes=[_lane(lane, benchmark, measured) for lane in measured.lanes],
        refused=dict(model.facts.refused),
    )


def _lane(lane: Lane, benchmark: Benchmark, measured: Measurement) -> LaneRecord:
    samples, plain = measured.of(lane), measured.of(measured.lanes[0])
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(benchmark.category(sample), []).append(sample)
    return LaneRecord(
        drafter=lane.name,
        all=_figures(lane, samples, plain),
        categories={category: _figures(lane, group, plain) for category, group in groups.items()},
        passes_by_drafter=dict(passes_by_drafter(samples)),
    )


def _figures(lane: Lane, ours: Sequence[Sample], plain: Sequence[Sample]) -> Figures:
    """``plain`` may have more questions than ``ours``."""
    asked = {sample.prompt for sample in ours}
    theirs = [sample for sample in plain if sample.prompt in asked]
    counts = counts_of(ours)
    return Figures(
        tokens=counts.emitted,
        seconds=sum(sample.seconds for sample in ours),
        passes=counts.passes,
        drafted=counts.drafted,
        accepted=counts.accepted,
        answers=counts.answers,
        identical=agreeing(plain, ours),
        speedup=None if lane.plain else _ratio(rate_of(ours), rate_of(theirs)),
    )


def _ratio(ours: float, theirs: float) -> float | None:
    return ours / theirs if ours > 0 and theirs > 0 else None
