"""The statistics of a measurement: medians and spreads, ratios of paired runs, counts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from app.bench.lanes import Lane
from app.bench.measure import Difference, Measurement, Sample
from engine.request import DepthCount, summed, tokens_per_pass


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and where the middle four fifths of the values lie."""

    median: float
    low: float  # 10th percentile, between the neighbours where none of the values is it
    high: float  # 90th percentile
    count: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Some answers added up."""

    answers: int
    emitted: int
    passes: int
    drafted: int
    accepted: int

    @property
    def tokens_per_pass(self) -> float:
        """How far one pass of the model went; 0 when none ran."""
        return tokens_per_pass(self.passes, self.accepted, self.emitted, self.answers)


@dataclass(frozen=True, slots=True)
class LaneSummary:
    """One lane over all prompts and repeats; None where nothing can be said."""

    lane: Lane
    rate: Spread | None  # tokens per second
    speedup: Spread | None  # over the baseline: ratios of rates of the same prompt and repeat
    first_seconds: Spread | None
    tokens_per_pass: float  # over the passes that each request took part in
    emitted: int
    passes: int
    drafted: int
    accepted: int
    near_ties: int  # tokens decoded again as one row
    depths: tuple[DepthCount, ...]  # depth 1 first
    passes_by_drafter: tuple[tuple[str, int], ...]  # most first; several only for auto
    answers: int
    agreeing: int | None  # answers that are the baseline's, token by token; None: not compared
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Run:
    """Answers of one lane that ran together, or one that ran alone."""

    group: int
    repeat: int
    timed: int  # tokens
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second; 0 when nothing was timed."""
        return self.timed / self.seconds if self.seconds > 0 else 0.0


def runs_of(samples: Iterable[Sample]) -> list[Run]:
    """The runs of one lane, in their order."""
    found: dict[tuple[int, int], Run] = {}
    for s in samples:
        place = (s.group, s.repeat)
        before = found[place].timed if place in found else 0
        found[place] = Run(s.group, s.repeat, before + s.timed, s.seconds)
    return list(found.values())


def counts_of(samples: Sequence[Sample]) -> Counts:
    """Added up."""
    return Counts(
        answers=len(samples),
        emitted=sum(len(s.ids) for s in samples),
        passes=sum(s.stats.passes for s in samples),
        drafted=sum(s.stats.drafted for s in samples),
        accepted=sum(s.stats.accepted for s in samples),
    )


def rate_of(samples: Iterable[Sample]) -> float:
    """Tokens per second over answers that ran alone; 0 when nothing was timed."""
    run = list(samples)
    seconds = sum(s.seconds for s in run)
    return sum(s.timed for s in run) / seconds if seconds > 0 else 0.0


def passes_by_drafter(samples: Iterable[Sample]) -> tuple[tuple[str, int], ...]:
    """(drafter, its passes), most first; several only under auto."""
    drafters: Counter[str] = Counter()
    for part in (part for s in samples for part in s.stats.runs):
        drafters[part.drafter] += part.passes
    return tuple(drafters.most_common())


def agreeing(base: Iterable[Sample], samples: Iterable[Sample]) -> int:
    """Answers that are, token by token, those of ``base`` to the same prompt in the same repeat."""
    plain = {(s.prompt, s.repeat): s.ids for s in base}
    return sum(plain[s.prompt, s.repeat] == s.ids for s in samples)


def spread(values: Iterable[float]) -> Spread | None:
    """Median and 10th to 90th percentile, linear between neighbours; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    if len(ordered) == 1:
        return Spread(ordered[0], ordered[0], ordered[0], 1)
    tenths = quantiles(ordered, n=10, method="inclusive")
    return Spread(median(ordered), tenths[0], tenths[-1], len(ordered))


def paired_ratios(base: Iterable[Sample], other: Iterable[Sample]) -> list[float]:
    """Rates of ``other`` over those of ``base``, each of the same prompts and the same repeat.

    What slows the machine for a while slows both halves of a pair. Pairs with an empty answer have
    no ratio.
    """
    rates = {(run.group, run.repeat): run.rate for run in runs_of(base) if run.rate > 0}
    pairs = ((rates.get((run.group, run.repeat)), run.rate) for run in runs_of(other) if run.timed)
    return [theirs / ours for ours, theirs in pairs if ours is not None]


def summarize(measurement: Measurement) -> tuple[LaneSummary, ...]:
    """One summary for each lane, in the order of the lanes."""
    return tuple(_summary(measurement, lane) for lane in measurement.lanes)


def _summary(measurement: Measurement, lane: Lane) -> LaneSummary:
    samples, baseline = measurement.of(lane), measurement.baseline
    base = measurement.of(baseline) if baseline not in (None, lane) else []
    counts = counts_of(samples)
    return LaneSummary(
        lane=lane,
        rate=spread(run.rate for run in runs_of(samples) if run.rate > 0),
        speedup=spread(paired_ratios(base, samples)),
        first_seconds=spread(s.first_seconds for s in samples if s.first_seconds is not None),
        tokens_per_pass=counts.tokens_per_pass,
        emitted=counts.emitted,
        passes=counts.passes,
        drafted=counts.drafted,
        accepted=counts.accepted,
        near_ties=sum(s.stats.near_ties for s in samples),
        depths=summed([s.stats.depths for s in samples]),
        passes_by_drafter=passes_by_drafter(samples),
        answers=counts.answers,
        agreeing=agreeing(base, samples) if base and measurement.conditions.comparable else None,
        difference=measurement.differences.get(lane.name),
    )
