"""How a race is shown: tables, and a bar for every lane with its range over the kinds. SVG."""

from collections.abc import Iterator
from html import escape

from app.bench.peers.report import LaneFacts, PeerReport
from app.bench.summary import rate_of

MEGABYTE = 1e6
HEADINGS = ("tokens/s", "over plain", "worst kind", "first token", "load", "memory", "as its plain")
WIDTHS = (10, 12, 24, 13, 9, 10, 14)
ROW, TOP, NAMES, BARS, RIGHT = 26, 60, 330, 440, 90
INK, MUTED, OWN, OTHER, PAPER = "#1f2328", "#656d76", "#0969da", "#afb8c1", "#ffffff"
STEPS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0)


def table(report: PeerReport) -> Iterator[str]:
    """The lines to print."""
    machine = report.machine
    yield f"{report.model}; {report.conditions}"
    yield f"{machine.cpu}, {machine.cores} cores, {machine.date}"
    yield (
        "tokens/s after the first token, by the clock of the asking process; over plain: the geometric "
        f"mean of the kinds' ratios to {report.lanes[0].name}"
    )
    wide = max(len(lane.name) for lane in report.lanes)
    yield "lane".ljust(wide) + _cells(HEADINGS)
    for lane in report.lanes:
        yield lane.name.ljust(wide) + _cells(_row(report, lane))
    yield ""
    yield from _by_kind(report)
    yield from _disturbed(report)


def _row(report: PeerReport, lane: LaneFacts) -> tuple[str, ...]:
    worst, kind = report.worst(lane.name)
    answers = len(report.of(lane.name))
    memory = "-" if lane.peak_bytes is None else f"{lane.peak_bytes / MEGABYTE:.0f} MB"
    known = report.of(lane.plain)
    return (
        f"{rate_of(report.of(lane.name)):.1f}",
        f"{report.mean(lane.name):.2f}",
        f"{worst:.2f} {kind}",
        f"{1000 * report.first_seconds(lane.name):.0f} ms",
        f"{lane.load_seconds:.1f} s",
        memory,
        f"{report.same(lane)}/{answers}" if known else "-",
    )


def _by_kind(report: PeerReport) -> Iterator[str]:
    """Ratios to the first lane: kinds down, lanes across by number."""
    heading = "over plain by kind:"
    wide = max(map(len, (heading, *report.names)))
    numbers = range(1, len(report.lanes) + 1)
    yield heading.ljust(wide) + "".join(f"{number:>7}" for number in numbers)
    for kind in report.names:
        ratios = (report.ratio(lane.name, kind) for lane in report.lanes)
        yield kind.ljust(wide) + "".join(f"{ratio:7.2f}" for ratio in ratios)


def _disturbed(report: PeerReport) -> Iterator[str]:
    repeated = sum(lane.repeated for lane in report.lanes)
    yield f"other programs took the processor in {repeated} runs, which were done again"
    if report.left_out:
        yield f"prompts that do not count, since some lane was disturbed in every try: {len(report.left_out)}"


def _cells(cells: tuple[str, ...]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def picture(report: PeerReport) -> str:
    """The first lane is 1; a thin line goes from the lowest kind to the highest."""
    rows = [(lane.name, report.mean(lane.name), _range(report, lane.name)) for lane in report.lanes]
    most = max(high for _, _, (_, high) in rows)
    end = next((step for step in STEPS if step >= most), most)
    width, height = NAMES + BARS + RIGHT, TOP + ROW * len(rows) + 30
    heading = f"{report.model}: speed over {report.lanes[0].name}"
    told = f"{report.machine.cpu}, {report.machine.cores} cores, {report.machine.date[:10]}; bar: mean of the kinds; line: lowest to highest kind"
    shapes = "".join(
        _bar(place, row, end, own=row[0].startswith("slipstream")) for place, row in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="13" role="img" '
        f'aria-label="{escape(heading)}"><rect width="100%" height="100%" fill="{PAPER}"/>'
        f'<text x="12" y="24" font-size="15" font-weight="600" fill="{INK}">{escape(heading)}</text>'
        f'<text x="12" y="43" font-size="11" fill="{MUTED}">{escape(told)}</text>'
        f"{''.join(_grid(end, height))}{shapes}</svg>\n"
    )


def _range(report: PeerReport, lane: str) -> tuple[float, float]:
    ratios = [ratio for kind in report.names if (ratio := report.ratio(lane, kind)) > 0]
    return min(ratios, default=0.0), max(ratios, default=0.0)


def _grid(end: float, height: int) -> Iterator[str]:
    for step in (step for step in STEPS if step <= end):
        x = NAMES + BARS * step / end
        ink = INK if step == 1.0 else "#d8dee4"
        yield f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{height - 24}" stroke="{ink}"/>'
        yield f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle" font-size="11" fill="{MUTED}">{step:g}</text>'


def _bar(place: int, row: tuple[str, float, tuple[float, float]], end: float, *, own: bool) -> str:
    name, mean, (low, high) = row
    y, scale = TOP + ROW * place, BARS / end
    middle, left, right = y + 9, NAMES + scale * low, NAMES + scale * high
    return (
        f'<text x="{NAMES - 8}" y="{y + 13}" text-anchor="end" fill="{INK}">{escape(name)}</text>'
        f'<rect x="{NAMES}" y="{y}" width="{scale * mean:.1f}" height="18" rx="2" fill="{OWN if own else OTHER}"/>'
        f'<line x1="{left:.1f}" y1="{middle}" x2="{right:.1f}" y2="{middle}" stroke="{INK}" stroke-width="1.5"/>'
        f'<text x="{max(right, NAMES + scale * mean) + 6:.1f}" y="{y + 13}" fill="{INK}">{mean:.2f}</text>'
    )
