"""This machine's own figures: the prompt categories of Spec-Bench and ours, every mode in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from app.bench.compare.isolated_run import IsolatedRunner
from app.bench.lanes import Lane, check_drafters
from app.bench.measure import Measurement, Prompt, Prompts, Sample, Turn, Watcher, measure
from app.bench.options import Conditions
from app.bench.prompt_files import Tagged
from app.request import Message
from engine.errors import ContextOverflow, InvalidRequest
from engine.request import AUTO, PLAIN, ModelFacts


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: prompts of every category, and the most tokens of an answer."""

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
    """What is compared with plain decoding; no drafter named: what the size says."""

    size: str = "quick"
    drafters: tuple[str, ...] = ()

    def lanes(self, facts: ModelFacts) -> tuple[str, ...]:
        """Plain first, then auto; raises InvalidRequest for what cannot run."""
        if self.size not in SIZES:
            raise InvalidRequest(f"there is no size {self.size!r}; choose {', '.join(SIZES)}")
        usual = (AUTO, *facts.drafters) if SIZES[self.size].every else (AUTO,)
        named = self.drafters or usual
        check_drafters(named, facts)
        return tuple(dict.fromkeys((PLAIN, *named)))


@dataclass
class Benchmark(Watcher):
    """A benchmark that any page may look at."""

    options: BenchmarkOptions
    lanes: tuple[str, ...]
    questions: tuple[Tagged, ...]
    changed: Callable[[], None]
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

    def category(self, sample: Sample) -> str:
        """Of the question that was answered."""
        return self.questions[sample.prompt - 1].category

    @override
    def begin(self, turn: Turn) -> None:
        category = self.questions[turn.prompts[0].number - 1].category
        self.now = f"{category if turn.repeat else 'warm-up'}, {turn.lane.name}"
        self.changed()

    @override
    def end(self, sample: Sample) -> None:
        self.done += 1


async def run_benchmark(runner: IsolatedRunner, benchmark: Benchmark) -> Measurement:
    """Every question in every lane, and the first one before that, untimed.

    The drafters of a lane remember from question to question, as in a day's use.
    Raises WorkerCrashed, RequestFailed.
    """
    prompts = _fitting(runner, benchmark.questions)
    benchmark.skipped = len(benchmark.questions) - len(prompts)
    lanes = [Lane(name, name) for name in benchmark.lanes]
    conditions = Conditions(max_tokens=benchmark.size.max_tokens, repeats=1)
    runners = dict.fromkeys(benchmark.lanes, runner)
    groups = Prompts([[prompt] for prompt in prompts])
    return await measure(lanes, groups, conditions, runners, benchmark)


def _fitting(runner: IsolatedRunner, asked: Sequence[Tagged]) -> list[Prompt]:
    """The questions that fit the model's context, numbered as they are."""
    found = []
    for number, question in enumerate(asked, 1):
        messages = (Message("user", question.turns[0]),)
        try:
            runner.prepare(messages)
        except ContextOverflow:
            continue
        found.append(Prompt(number, messages))
    return found
