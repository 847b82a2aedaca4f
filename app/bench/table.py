"""A benchmark for people: conditions, one row a lane, acceptance, differences."""

from collections.abc import Callable, Iterator

from app.bench.measure import Difference
from app.bench.report import BenchReport
from app.bench.summary import LaneSummary, Spread
from app.placement.plans import dtype_name
from engine.request import DepthCount

DEEPEST = 8  # levels of acceptance shown; the file for machines has all
HEADINGS = (
    "tokens/s", "10-90 %", "speed-up", "10-90 %", "tokens/pass", "drafted", "accepted",
    "first token", "as plain",
)  # fmt: skip
WIDTHS = (10, 16, 10, 12, 13, 9, 10, 13, 11)


def table(report: BenchReport) -> Iterator[str]:
    """The lines to print."""
    yield from _conditions(report)
    name_width = max(len("lane"), *(len(summary.lane.name) for summary in report.lanes))
    yield "lane".ljust(name_width) + _cells(HEADINGS)
    for summary in report.lanes:
        yield summary.lane.name.ljust(name_width) + _cells(_row(report, summary))
    for summary in report.lanes:
        if summary.depths:
            shares = " ".join(_share(depth) for depth in summary.depths[:DEEPEST])
            yield f"accepted of evaluated by depth, {summary.lane.name}: {shares}"
    for summary in report.lanes:
        if summary.near_ties:
            yield f"near ties decoded again, {summary.lane.name}: {summary.near_ties} of {summary.emitted} tokens"
    yield from _agreement(report)


def _conditions(report: BenchReport) -> Iterator[str]:
    measurement, machine = report.measurement, report.machine
    facts, conditions = report.facts, measurement.conditions
    answers = report.lanes[0].answers // conditions.repeats
    yield (
        f"{facts.name}, {facts.parameters / 1e6:.1f} million parameters, {dtype_name(report.spec)}; "
        f"{_sampling(report)}; at most {conditions.max_tokens} tokens an answer"
    )
    if report.spec.inflate > 1:
        yield (
            f"inflated: every feed-forward part is {report.spec.inflate} times as wide, the new "
            "part adds zero. The same function at a larger cost: answers are those of "
            f"{facts.name}, seconds those of a model of the size named here"
        )
    yield (
        f"{_many(answers, 'prompt')}, {_many(conditions.repeats, 'repeat')}, "
        f"{conditions.concurrent} at a time, lanes taking turns; "
        f"{_many(measurement.skipped, 'prompt')} skipped (past the context of {facts.context})"
    )
    if conditions.warm_up:
        yield "one warm-up round of all lanes on the first prompt was dropped"
    yield (
        "every run begins with cold caches, every repeat with drafters that have learnt nothing; "
        "tokens/s is "
        + ("decoding alone" if conditions.concurrent == 1 else "all tokens over wall time")
        + ", a draft model's reading of the prompt included; "
        "speed-up is the median of ratios of the same prompt and repeat"
    )
    yield (
        f"{machine.cpu}; {_many(machine.cores, 'core')}, {_many(machine.threads, 'thread')}, "
        f"torch {machine.torch}, {machine.date}"
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


def _sampling(report: BenchReport) -> str:
    sampling = report.measurement.conditions.sampling
    if sampling.greedy:
        return "greedy"
    law = f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}"
    law += f", top-k {sampling.top_k}" * (sampling.top_k > 0)
    law += f", min-p {sampling.min_p:g}" * (sampling.min_p > 0)
    return f"{law}, {'drawn afresh' if sampling.seed is None else f'seed {sampling.seed}'}"


def _cells(cells: tuple[str, ...]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def _row(report: BenchReport, summary: LaneSummary) -> tuple[str, ...]:
    return (
        *_spread(summary.rate, 1),
        *_spread(summary.speedup, 2),
        f"{summary.tokens_per_pass:.2f}",
        str(summary.drafted),
        str(summary.accepted),
        "-" if summary.first_seconds is None else f"{1000 * summary.first_seconds.median:.0f} ms",
        _agreeing(report, summary),
    )


def _spread(spread: Spread | None, digits: int) -> tuple[str, str]:
    if spread is None:
        return "-", "-"
    return f"{spread.median:.{digits}f}", f"{spread.low:.{digits}f}-{spread.high:.{digits}f}"


def _agreeing(report: BenchReport, summary: LaneSummary) -> str:
    if summary.agreeing is not None:
        return f"{summary.agreeing}/{summary.answers}"
    return "-" if report.measurement.conditions.comparable else "sampled"


def _share(depth: DepthCount) -> str:
    return f"{depth.accepted / depth.evaluated:.2f}"


def _agreement(report: BenchReport) -> Iterator[str]:
    if not report.measurement.conditions.comparable:
        yield "sampled, not compared: without a seed every run draws its own tokens"
        return
    for summary in report.lanes:
        if (found := summary.difference) is not None:
            yield difference_line(summary.lane.name, found, str)
    if all(s.agreeing == s.answers for s in report.lanes if s.agreeing is not None):
        yield "every token agrees"


def difference_line(lane: str, found: Difference, shown: Callable[[int], str]) -> str:
    """Where a lane left plain's tokens; ``shown`` writes a token."""
    plain, drafted = (
        "ends" if token is None else shown(token) for token in (found.plain, found.drafted)
    )
    gap = "is not known" if found.gap is None else f"is {found.gap:.6g}"
    return (
        f"{lane} differs first in prompt {found.prompt} at token {found.token}: plain {plain}, "
        f"drafted {drafted}; plain's gap between its two largest logits there {gap}"
    )
