"""What a race came to, by lane and kind of prompt; for machines, every number."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import exp, log
from statistics import median
from typing import Any

from app.bench.measure import Sample
from app.bench.report import Machine
from app.bench.summary import agreeing, rate_of


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """What is known of a lane besides its answers."""

    name: str
    plain: str  # the lane whose answers these should be
    load_seconds: float
    peak_bytes: int | None
    repeated: int  # runs that others disturbed, done again
    disturbed: frozenset[int]  # prompts of which every try was disturbed


@dataclass(frozen=True, slots=True)
class PeerReport:
    """All samples; the first lane is what the others are compared with."""

    machine: Machine
    model: str
    conditions: str  # one line
    lanes: tuple[LaneFacts, ...]
    samples: tuple[Sample, ...]
    kinds: Mapping[int, str]  # by prompt

    @property
    def left_out(self) -> frozenset[int]:
        """Prompts that do not count, in any lane: others took the processor in some lane's every try."""
        return frozenset().union(*(lane.disturbed for lane in self.lanes))

    @property
    def names(self) -> list[str]:
        """Of the kinds, in the order of their prompts."""
        return list(dict.fromkeys(self.kinds[number] for number in sorted(self.kinds)))

    def of(self, lane: str, kind: str | None = None) -> list[Sample]:
        """Samples of one lane that count, of one kind or all."""
        left_out = self.left_out
        own = (s for s in self.samples if s.lane == lane and s.prompt not in left_out)
        return [sample for sample in own if kind in (None, self.kinds[sample.prompt])]

    def ratio(self, lane: str, kind: str) -> float:
        """Tokens per second over the first lane's, of all prompts of a kind; 0: nothing was timed."""
        base = rate_of(self.of(self.lanes[0].name, kind))
        return rate_of(self.of(lane, kind)) / base if base else 0.0

    def mean(self, lane: str) -> float:
        """Geometric mean of the kinds' ratios."""
        found = [ratio for kind in self.names if (ratio := self.ratio(lane, kind)) > 0]
        return exp(sum(map(log, found)) / len(found)) if found else 0.0

    def worst(self, lane: str) -> tuple[float, str]:
        """The lowest ratio, and its kind."""
        found = ((self.ratio(lane, kind), kind) for kind in self.names)
        return min((one for one in found if one[0] > 0), default=(0.0, ""))

    def first_seconds(self, lane: str) -> float:
        """Median time to the first token."""
        found = [s.first_seconds for s in self.of(lane) if s.first_seconds is not None]
        return median(found) if found else 0.0

    def same(self, lane: LaneFacts) -> int:
        """Answers that are plain's of the same program."""
        return agreeing(self.of(lane.plain), self.of(lane.name))


def as_record(report: PeerReport) -> dict[str, Any]:
    """Every number."""
    return {
        "machine": asdict(report.machine),
        "model": report.model,
        "conditions": report.conditions,
        "lanes": [
            {
                **asdict(lane),
                "disturbed": sorted(lane.disturbed),
                "tokens_per_second": rate_of(report.of(lane.name)),
                "over_plain": report.mean(lane.name),
                "first_seconds": report.first_seconds(lane.name),
                "same_answers": report.same(lane),
                "kinds": {kind: report.ratio(lane.name, kind) for kind in report.names},
            }
            for lane in report.lanes
        ],
        "answers": [_answer(report, sample) for sample in report.samples],
    }


def _answer(report: PeerReport, sample: Sample) -> dict[str, Any]:
    return {
        "lane": sample.lane,
        "prompt": sample.prompt,
        "kind": report.kinds[sample.prompt],
        "prompt_tokens": sample.stats.prompt_tokens,
        "tokens": len(sample.ids),
        "timed": sample.timed,
        "seconds": sample.seconds,
        "first_seconds": sample.first_seconds,
        "drafted": sample.stats.drafted,
        "accepted": sample.stats.accepted,
    }
