"""One prompt in two to four lanes: plain decoding and speed modes, or two models, in turns.

A race is run as a warm-up that nobody counts and then ``repeats`` timed rounds. Every round has
every lane once, and who begins changes from round to round.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.bench.compare.isolated_run import Follow, IsolatedRequest, IsolatedRunner, Pass, Run
from app.bench.compare.result import Judge, LaneResult
from app.request import Message
from engine.errors import InvalidRequest
from engine.request import AUTO, PLAIN, ModelFacts

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

    def lanes(self, model: str) -> dict[str, str]:
        """Names of the lanes and their drafters; the first is what others are compared with."""
        if self.rival:
            return {model: AUTO, self.rival: AUTO}
        return {name: name for name in (PLAIN, *self.drafters)}


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
    last: Run | None = None  # the run that ended last

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


@dataclass(slots=True)
class Race:
    """A race on its way, for anybody to look at; ``changed`` is called when something was added."""

    model: str
    options: RaceOptions
    lanes: dict[str, LiveLane]
    changed: Callable[[], None]
    round: int = 0  # 0 is the warm-up
    goal: int = 0  # tokens of the longest answer, once one is known
    results: tuple[LaneResult, ...] = ()  # when it is over
    started: float = field(default_factory=time.time)

    @classmethod
    def of(cls, model: str, options: RaceOptions, changed: Callable[[], None]) -> "Race":
        """A race that has not begun."""
        return cls(model, options, {name: LiveLane(name) for name in options.lanes(model)}, changed)


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
        raise InvalidRequest(f"{chosen} modes are chosen beside plain; choose 1 to {MAX_LANES - 1}")
    check_drafters(tuple(lanes), facts)


def check_drafters(drafters: tuple[str, ...], facts: ModelFacts) -> None:
    """Refuse modes that this model does not have; raises InvalidRequest."""
    refused = dict(facts.refused)
    for name in drafters:
        if name not in (AUTO, *facts.drafters):
            why = refused.get(name, "this engine does not have it")
            raise InvalidRequest(f"{name} cannot run with {facts.name}: {why}")


async def run_race(tracks: Mapping[str, IsolatedRunner], race: Race) -> None:
    """Run all rounds, each lane on the track of its name.

    Raises WorkerCrashed, RequestFailed, InvalidRequest, ContextOverflow.
    """
    options = race.options
    drafters = options.lanes(race.model)
    messages = (Message("user", options.prompt),)
    asked = {name: tracks[name].asked(messages, options.max_tokens) for name in drafters}
    rounds: list[dict[str, Run]] = []
    for number in range(options.repeats + 1):
        race.round = number
        start = max(0, number - 1) % len(drafters)
        names = tuple(drafters)
        runs: dict[str, Run] = {}
        for name in (*names[start:], *names[:start]):
            runs[name] = await _drive(tracks[name], asked[name], race, name, drafters[name])
        if number:
            rounds.append(runs)
    await _judge(tracks, asked, race, rounds)


async def _drive(
    track: IsolatedRunner, asked: IsolatedRequest, race: Race, name: str, drafter: str
) -> Run:
    lane, key = race.lanes[name], f"{name} {race.round}"
    run = await track.run(asked, drafter, key, _follower(race, lane))
    lane.running, lane.last = False, run
    race.goal = max(race.goal, len(run.ids))
    race.changed()
    return run


async def _judge(
    tracks: Mapping[str, IsolatedRunner],
    asked: Mapping[str, IsolatedRequest],
    race: Race,
    rounds: Sequence[Mapping[str, Run]],
) -> None:
    """The results; plain decodes once more where some lane differs, as telling gaps costs time."""
    names, first = tuple(asked), next(iter(asked))
    track, same = tracks[first], not race.options.rival
    margins: tuple[float, ...] = ()
    if same and any(run.ids != runs[first].ids for runs in rounds for run in runs.values()):
        told = replace(asked[first].request, margins=True)
        margins = (await track.run(IsolatedRequest(told), PLAIN, "margins")).margins
    judge = Judge(margins, track.model.text.decode, same)
    race.results = judge.results(names, rounds)
    race.changed()


def _follower(race: Race, lane: LiveLane) -> Follow:
    def follow(one: Pass | None) -> None:
        if one is None:
            lane.begin()
        else:
            lane.add(one)
        race.changed()

    return follow
