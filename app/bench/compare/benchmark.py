"""This machine's own figures: the prompt categories of Spec-Bench and ours, every mode in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.bench.compare.isolated_run import IsolatedRunner, Run
from app.bench.compare.race import check_drafters
from app.bench.papers.prompts import EDIT, WORD_PROBLEM, load_prompts
from app.request import Message
from engine.errors import ContextOverflow, InvalidRequest
from engine.request import AUTO, PLAIN, ModelFacts

KEY = "benchmark"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: prompts of every category, at most so many tokens an answer."""

    each: int
    max_tokens: int
    every: bool  # mode that the model has, not auto alone


SIZES = {
    "quick": Size(1, 64, every=False),
    "modes": Size(1, 64, every=True),
    "full": Size(2, 128, every=True),
}


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """What is measured beside plain decoding; no drafter named: what the size says."""

    size: str = "quick"
    drafters: tuple[str, ...] = ()

    def lanes(self, facts: ModelFacts) -> tuple[str, ...]:
        """Plain first, then auto; raises InvalidRequest for what cannot run."""
        if self.size not in SIZES:
            raise InvalidRequest(f"there is no size {self.size!r}; choose {', '.join(SIZES)}")
        usual = (AUTO, *facts.drafters) if SIZES[self.size].every else (AUTO,)
        named = self.drafters or usual
        check_drafters(named, facts)
        return (PLAIN, *(name for name in dict.fromkeys(named) if name != PLAIN))


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt and the category that it stands for."""

    category: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One answer of the benchmark."""

    question: int  # place in the list of questions
    drafter: str
    run: Run


@dataclass(slots=True)
class Benchmark:
    """A benchmark on its way, for anybody to look at."""

    options: BenchmarkOptions
    lanes: tuple[str, ...]
    questions: tuple[Question, ...]
    changed: Callable[[], None]
    cells: list[Cell] = field(default_factory=list)
    skipped: int = 0  # questions past the model's context
    done: int = 0  # runs, the warm-up among them
    now: str = ""  # what runs, as a sentence's part
    started: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> Size:
        """How much is measured."""
        return SIZES[self.options.size]

    @property
    def total(self) -> int:
        """Runs from the first to the last, the warm-up among them."""
        return (len(self.questions) - self.skipped + 1) * len(self.lanes)

    @property
    def seconds_left(self) -> float | None:
        """By the pace so far; None before the warm-up is over."""
        if self.done < len(self.lanes):
            return None
        return (time.monotonic() - self.started) / self.done * (self.total - self.done)


def questions(each: int) -> tuple[Question, ...]:
    """At most ``each`` first turns of every category that the package ships."""
    shipped = load_prompts(None, each)
    groups = (
        *shipped.open,
        (WORD_PROBLEM, shipped.problems[:each]),
        (EDIT, shipped.edits[:each]),
    )
    return tuple(Question(name, turns[0]) for name, group in groups for turns in group)


async def run_benchmark(track: IsolatedRunner, benchmark: Benchmark) -> None:
    """Every question in every lane, who begins changing; the first question once before, untimed.

    The drafters of a lane remember from question to question, as in a day's use.
    Raises WorkerCrashed, RequestFailed.
    """
    for place, question in enumerate(benchmark.questions):
        start = place % len(benchmark.lanes)
        order = (*benchmark.lanes[start:], *benchmark.lanes[:start])
        try:
            if place == benchmark.skipped:  # the first that fits
                await _ask(track, benchmark, question, order)
            for cell in await _ask(track, benchmark, question, order, place):
                benchmark.cells.append(cell)
        except ContextOverflow:
            benchmark.skipped += 1


async def _ask(
    track: IsolatedRunner,
    benchmark: Benchmark,
    question: Question,
    order: Sequence[str],
    place: int | None = None,
) -> list[Cell]:
    """One question in all lanes; without a ``place`` it is the warm-up, with drafters of its own."""
    asked = track.asked((Message("user", question.prompt),), benchmark.size.max_tokens)
    cells = []
    for name in order:
        benchmark.now = f"{'warm-up' if place is None else question.category}, {name}"
        benchmark.changed()
        key = f"{'warm-up' if place is None else KEY} {name}"
        run = await track.run(asked, name, key)
        benchmark.done += 1
        cells.append(Cell(place or 0, name, run))
    return cells
