"""What a race says of each lane: speed over the first in the same round, and whether tokens agree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from app.bench.compare.isolated_run import Run
from app.bench.verify import Difference, find_difference
from engine.request import DepthCount, summed, tokens_per_pass


@dataclass(frozen=True, slots=True)
class LaneResult:
    """One lane over all timed rounds."""

    name: str
    runs: tuple[Run, ...]  # round by round
    speedups: tuple[float, ...]  # over the first lane in the same round; empty for itself
    difference: Difference | None  # the first from plain; its round is ``difference.prompt``
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
    def shown(self) -> Run:
        """The run of the median rate, the slower one of two: what a replay plays."""
        middle = median_low(run.rate for run in self.runs)
        return next(run for run in self.runs if run.rate == middle)

    @property
    def first_seconds(self) -> float:
        """Median time from the request to the first tokens; 0 when there were none."""
        return median(run.passes[0].seconds if run.passes else 0.0 for run in self.runs)

    @property
    def depths(self) -> tuple[DepthCount, ...]:
        """Drafted tokens evaluated and accepted by depth, depth 1 first, over all rounds."""
        return summed([run.stats.depths for run in self.runs])

    @property
    def drafted(self) -> int:
        """Tokens drafted in all rounds."""
        return sum(run.stats.drafted for run in self.runs)

    @property
    def accepted(self) -> int:
        """Of these, accepted."""
        return sum(run.stats.accepted for run in self.runs)

    @property
    def tokens_per_pass(self) -> float:
        """How far one pass of the model went; 0 when none ran."""
        passes = sum(run.stats.passes for run in self.runs)
        tokens = sum(len(run.ids) for run in self.runs)
        return tokens_per_pass(passes, self.accepted, tokens, len(self.runs))


@dataclass(frozen=True, slots=True)
class Judge:
    """What is known beside the runs: plain's ``margins``, and how tokens read."""

    margins: Sequence[float]  # plain's, as far as they are known
    decode: Callable[[Sequence[int]], str]
    same: bool = True  # model in all lanes: only then tokens can be compared

    def results(
        self, lanes: Sequence[str], rounds: Sequence[Mapping[str, Run]]
    ) -> tuple[LaneResult, ...]:
        """One for each lane; the others are compared with the first."""
        return tuple(_judged(name, lanes[0], rounds, self) for name in lanes)

    def read(self, token: int | None) -> str:
        """One token as text; nothing where the answer ends."""
        return "" if token is None else self.decode([token])


def _judged(name: str, first: str, rounds: Sequence[Mapping[str, Run]], judge: Judge) -> LaneResult:
    pairs = [(runs[first], runs[name]) for runs in rounds]
    timed = [] if name == first else [(p, r) for p, r in pairs if p.rate > 0]
    found = (
        find_difference(number, plain.ids, run.ids, judge.margins)
        for number, (plain, run) in enumerate(pairs, 1)
        if judge.same
    )
    apart = next((one for one in found if one is not None), None)
    return LaneResult(
        name=name,
        runs=tuple(run for _, run in pairs),
        speedups=tuple(run.rate / plain.rate for plain, run in timed),
        difference=apart,
        words=("", "") if apart is None else (judge.read(apart.plain), judge.read(apart.drafted)),
    )
