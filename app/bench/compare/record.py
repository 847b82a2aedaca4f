"""A benchmark's result as it is kept and shared: one JSON object, no prompt and no answer in it."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from app.bench.compare.benchmark import Benchmark, Cell
from app.bench.compare.isolated_run import Run
from app.chat.loaded_model import LoadedModel
from app.placement.machine import machine_name
from engine.request import PLAIN, tokens_per_pass

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


def record(benchmark: Benchmark, model: LoadedModel) -> BenchmarkRecord:
    """What was measured so far, as it is kept."""
    return BenchmarkRecord(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        model=model.entry.name,
        parameters=model.facts.parameters,
        machine=machine_name(model.spec.device, model.spec.dtype),
        questions=len(benchmark.questions) - benchmark.skipped,
        skipped=benchmark.skipped,
        max_tokens=benchmark.size.max_tokens,
        lanes=[_lane(name, benchmark) for name in benchmark.lanes],
        refused=dict(model.facts.refused),
    )


def _lane(name: str, benchmark: Benchmark) -> LaneRecord:
    cells = [cell for cell in benchmark.cells if cell.drafter == name]
    plain = {cell.question: cell.run for cell in benchmark.cells if cell.drafter == PLAIN}
    names = [question.category for question in benchmark.questions]
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(names[cell.question], []).append(cell)
    passes: Counter[str] = Counter()
    for part in (part for cell in cells for part in cell.run.stats.runs):
        passes[part.drafter] += part.passes
    return LaneRecord(
        drafter=name,
        all=_figures(name, cells, plain),
        categories={category: _figures(name, group, plain) for category, group in groups.items()},
        passes_by_drafter=dict(passes.most_common()),
    )


def _figures(name: str, cells: Sequence[Cell], plain: dict[int, Run]) -> Figures:
    ours, theirs = [cell.run for cell in cells], [plain[cell.question] for cell in cells]
    return Figures(
        tokens=sum(len(run.ids) for run in ours),
        seconds=sum(run.stats.decode_seconds for run in ours),
        passes=sum(run.stats.passes for run in ours),
        drafted=sum(run.stats.drafted for run in ours),
        accepted=sum(run.stats.accepted for run in ours),
        answers=len(cells),
        identical=sum(run.ids == other.ids for run, other in zip(ours, theirs, strict=True)),
        speedup=None if name == PLAIN else _ratio(_rate(ours), _rate(theirs)),
    )


def _rate(runs: Sequence[Run]) -> float:
    seconds = sum(run.stats.decode_seconds for run in runs)
    return sum(len(run.ids) for run in runs) / seconds if seconds > 0 else 0.0


def _ratio(ours: float, theirs: float) -> float | None:
    return ours / theirs if ours > 0 and theirs > 0 else None
