"""One prompt in two to four lanes: plain decoding and speed modes, or two models.

A warm-up that is not counted, then ``repeats`` timed rounds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

from typing_extensions import override

from app.bench.compare.isolated_run import IsolatedRunner
from app.bench.compare.remote_run import RemoteRunner
from app.bench.lanes import Lane, check_drafters
from app.bench.measure import (
    Difference,
    Measurement,
    Pass,
    Prompt,
    Prompts,
    Sample,
    Turn,
    Watcher,
    measure,
)
from app.bench.options import Conditions
from app.bench.summary import Counts, counts_of, paired_ratios
from app.request import Message
from engine.errors import InvalidRequest
from engine.request import AUTO, PLAIN, DepthCount, ModelFacts, summed

MAX_LANES, MAX_REPEATS = 4, 5
MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class RaceOptions:
    """What is raced; plain decoding always runs and need not be named.

    With a ``rival``, another model, the two models race instead, both drafting as auto does.
    """

    prompt: str
    drafters: tuple[str, ...]
    repeats: int = 3
    max_tokens: int = 256
    rival: str = ""
    owner: str | None = None  # the name of the key whose prompt it is

    def lanes(self, model: str) -> tuple[Lane, ...]:
        """The first is what others are compared with."""
        if self.rival:
            return Lane(model, AUTO), Lane(self.rival, AUTO)
        return tuple(Lane(name, name) for name in dict.fromkeys((PLAIN, *self.drafters)))


@dataclass(frozen=True, slots=True)
class LaneResult:
    """One lane over all timed rounds."""

    name: str
    runs: tuple[Sample, ...]  # round by round
    speedups: tuple[float, ...]  # over the first lane in the same round; empty for itself
    difference: Difference | None = None  # the first from plain
    words: tuple[str, str] = ("", "")  # the two tokens there, plain's first; empty where one ends

    @property
    def rate(self) -> float:
        """Median tokens per second."""
        return median(run.rate for run in self.runs)

    @property
    def speedup(self) -> float | None:
        """Median over the first lane; None for that one, and when nothing was timed."""
        return median(self.speedups) if self.speedups else None

    @property
    def shown(self) -> Sample:
        """The run of the median rate, the slower one of two: what a replay plays."""
        middle = median_low(run.rate for run in self.runs)
        return next(run for run in self.runs if run.rate == middle)

    @property
    def first_seconds(self) -> float:
        """Median time from the request to the first tokens; 0 when there were none."""
        return median(run.first_seconds or 0.0 for run in self.runs)

    @property
    def depths(self) -> tuple[DepthCount, ...]:
        """Drafted tokens evaluated and accepted by depth, depth 1 first, over all rounds."""
        return summed([run.stats.depths for run in self.runs])

    @property
    def counts(self) -> Counts:
        """All rounds added up."""
        return counts_of(self.runs)


@dataclass(slots=True)
class LiveLane:
    """What is seen of a lane while the race runs."""

    name: str
    text: str = ""
    tokens: int = 0
    running: bool = False
    first: float | None = None  # clock at the first tokens
    first_tokens: int = 0  # that came then: they took the prompt's time
    latest: float = 0.0
    passes: list[Pass] = field(default_factory=list)
    last: Sample | None = None  # the run that ended last

    @property
    def rate(self) -> float | None:
        """Tokens per second since the first ones; None before there is something to divide."""
        if self.first is None or self.latest <= self.first:
            return None
        return (self.tokens - self.first_tokens) / (self.latest - self.first)

    def begin(self) -> None:
        """Empty for the next run."""
        self.text, self.tokens, self.first, self.latest = "", 0, None, 0.0
        self.running, self.passes = True, []

    def add(self, one: Pass) -> None:
        """One more pass."""
        if self.first is None:
            self.first, self.first_tokens = one.seconds, one.tokens
        self.latest = one.seconds
        self.text += one.text
        self.tokens += one.tokens
        self.passes.append(one)


@dataclass
class Race(Watcher):
    """A race that any page may look at; ``changed`` is called when something was added."""

    model: str
    options: RaceOptions
    changed: Callable[[], None]
    lanes: dict[str, LiveLane] = field(init=False)
    round: int = 0  # 0 is the warm-up
    goal: int = 0  # tokens of the longest answer, once one is known
    results: tuple[LaneResult, ...] = ()  # when it is over
    started: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        """Nothing has run yet."""
        names = (lane.name for lane in self.options.lanes(self.model))
        self.lanes = {name: LiveLane(name) for name in names}

    @override
    def begin(self, turn: Turn) -> None:
        self.round = turn.repeat
        self.lanes[turn.lane.name].begin()
        self.changed()

    @override
    def add(self, turn: Turn, one: Pass) -> None:
        self.lanes[turn.lane.name].add(one)
        self.changed()

    @override
    def end(self, sample: Sample) -> None:
        lane = self.lanes[sample.lane]
        lane.running, lane.last = False, sample
        self.goal = max(self.goal, len(sample.ids))
        self.changed()


def check_race(options: RaceOptions, facts: ModelFacts) -> None:
    """Refuse what cannot be raced; raises InvalidRequest."""
    if not options.prompt.strip():
        raise InvalidRequest("the prompt is empty; write something to answer")
    if not 1 <= options.repeats <= MAX_REPEATS:
        raise InvalidRequest(f"repeats is {options.repeats}; choose 1 to {MAX_REPEATS}")
    if not 1 <= options.max_tokens <= MAX_TOKENS:
        raise InvalidRequest(f"the length is {options.max_tokens}; choose 1 to {MAX_TOKENS} tokens")
    if options.rival:
        return
    lanes = options.lanes(facts.name)
    if not 2 <= len(lanes) <= MAX_LANES:
        chosen = len(lanes) - 1
        raise InvalidRequest(
            f"{chosen} modes are chosen next to plain; choose 1 to {MAX_LANES - 1}"
        )
    check_drafters([lane.drafter for lane in lanes], facts)


async def run_race(runners: Mapping[str, IsolatedRunner | RemoteRunner], race: Race) -> None:
    """Run all rounds, each lane with the runner of its name.

    Raises WorkerCrashed, RequestFailed, InvalidRequest, ContextOverflow.
    """
    options = race.options
    prompts = Prompts([[Prompt(1, (Message("user", options.prompt),))]])
    lanes = options.lanes(race.model)
    conditions = Conditions(max_tokens=options.max_tokens, repeats=options.repeats)
    measured = await measure(lanes, prompts, conditions, runners, race)
    race.results = results(measured, runners[lanes[0].name].model.text.decode)
    race.changed()


def results(
    measurement: Measurement, decode: Callable[[Sequence[int]], str]
) -> tuple[LaneResult, ...]:
    """One for each lane; the others are compared with the first, even if it is not plain."""

    def word(token: int | None) -> str:
        return "" if token is None else decode([token])

    first = measurement.of(measurement.lanes[0])
    found = []
    for lane in measurement.lanes:
        runs, difference = measurement.of(lane), measurement.differences.get(lane.name)
        ratios = [] if lane is measurement.lanes[0] else paired_ratios(first, runs)
        words = (word(difference.plain), word(difference.drafted)) if difference else ("", "")
        found.append(LaneResult(lane.name, tuple(runs), tuple(ratios), difference, words))
    return tuple(found)
