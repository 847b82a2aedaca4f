"""The statistics of a measurement: medians and spreads, ratios of paired runs, counts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles

from app.bench.lanes import Lane
from app.bench.run import Measurement, Sample
from app.bench.verify import Difference
from engine.request import DepthCount, summed, tokens_per_pass


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and where the middle four fifths of the values lie."""

    median: float
    low: float  # 10th percentile, between the neighbours where none of the values is it
    high: float  # 90th percentile
    count: int


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
    depths: tuple[DepthCount, ...]  # depth 1 first
    passes_by_drafter: tuple[tuple[str, int], ...]  # most first; several only for auto
    answers: int
    agreeing: int | None  # answers that are the baseline's, token by token; None: not compared
    difference: Difference | None


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

    Whatever slows the machine for a while slows both halves of a pair. Pairs with an empty answer
    have no ratio.
    """
    rates = {(sample.group, sample.repeat): sample.rate for sample in base if sample.emitted}
    pairs = ((rates.get((s.group, s.repeat)), s.rate) for s in other if s.emitted)
    return [theirs / ours for ours, theirs in pairs if ours is not None]


def summarize(measurement: Measurement) -> tuple[LaneSummary, ...]:
    """One summary for each lane, in the order of the lanes."""
    return tuple(_summary(measurement, lane) for lane in measurement.lanes)


def _summary(measurement: Measurement, lane: Lane) -> LaneSummary:
    samples, baseline = measurement.of(lane), measurement.baseline
    base = measurement.of(baseline) if baseline not in (None, lane) else []
    answers = [answer for sample in samples for answer in sample.answers]
    stats = [answer.stats for answer in answers]
    passes, accepted = sum(s.passes for s in stats), sum(s.accepted for s in stats)
    emitted = sum(s.emitted for s in stats)
    drafters: Counter[str] = Counter()
    for run in (run for s in stats for run in s.runs):
        drafters[run.drafter] += run.passes
    compared = bool(base) and measurement.conditions.comparable
    return LaneSummary(
        lane=lane,
        rate=spread(sample.rate for sample in samples if sample.emitted),
        speedup=spread(paired_ratios(base, samples)),
        first_seconds=spread(a.first_seconds for a in answers if a.first_seconds is not None),
        tokens_per_pass=tokens_per_pass(passes, accepted, emitted, len(answers)),
        emitted=emitted,
        passes=passes,
        drafted=sum(s.drafted for s in stats),
        accepted=accepted,
        depths=summed([s.depths for s in stats]),
        passes_by_drafter=tuple(drafters.most_common()),
        answers=len(answers),
        agreeing=_agreeing(base, samples) if compared else None,
        difference=dict(measurement.differences).get(lane.name),
    )


def _agreeing(base: Iterable[Sample], samples: Iterable[Sample]) -> int:
    plain = {(a.prompt, s.repeat): a.ids for s in base for a in s.answers}
    return sum(plain[a.prompt, s.repeat] == a.ids for s in samples for a in s.answers)
