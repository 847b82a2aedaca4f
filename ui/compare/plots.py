"""Line charts of a race: tokens per pass over time, and acceptance by depth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from app.bench.compare.result import LaneResult

WINDOW = 5  # passes whose mean is one point of the first chart
DEPTHS = 12  # that are drawn; deeper ones are too rare
LEAST = 3  # drafted tokens that were verified, for a share to be drawn
_TALL = 48.0

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """The texts and ranges of a chart."""

    heading: str
    unit: str  # of the horizontal axis
    most: float  # of the vertical axis, which begins at 0
    label: Callable[[float], str]  # of a height
    start: float = 0.0
    whole: bool = False  # the horizontal axis counts


def plots(results: Sequence[LaneResult], names: Sequence[str]) -> str:
    """Both charts with one legend of ``names``; nothing when no lane has two points. HTML."""
    passes = [progress(one) for one in results]
    shares = [acceptance(one) for one in results]
    highest = max((height for points in passes for _, height in points), default=1.0)
    first = Chart("Tokens per pass over time", "seconds", max(2.0, highest), _tokens)
    second = Chart("Acceptance by depth", "token of the draft", 1.0, _share, 1.0, whole=True)
    drawn = f"{_draw(first, passes, names)}{_draw(second, shares, names)}"
    return f'<div class="charts">{drawn}</div>{_legend(names)}' if drawn else ""


def progress(result: LaneResult) -> Points:
    """Time, and the mean of the latest passes' tokens, in the run that is shown."""
    run = result.shown.passes
    return [
        (
            one.seconds,
            sum(p.tokens for p in run[max(0, at - WINDOW + 1) : at + 1]) / min(at + 1, WINDOW),
        )
        for at, one in enumerate(run)
    ]


def acceptance(result: LaneResult) -> Points:
    """Depth, and the share of its drafted tokens that the model accepted."""
    return [
        (float(depth), count.accepted / count.evaluated)
        for depth, count in enumerate(result.depths[:DEPTHS], 1)
        if count.evaluated >= LEAST
    ]


def _draw(chart: Chart, lanes: Sequence[Points], names: Sequence[str]) -> str:
    """Nothing where no lane has two points."""
    end = max((x for points in lanes for x, _ in points), default=0.0)
    if max(map(len, lanes), default=0) < 2 or end <= chart.start:
        return ""
    shapes = "".join(_line(chart, end, at, points) for at, points in enumerate(lanes) if points)
    ends = "; ".join(
        f"{name} ends at {chart.label(points[-1][1])}"
        for name, points in zip(names, lanes, strict=True)
        if points
    )
    last = f"{end:.0f}" if chart.whole else f"{end:.1f}"
    return (
        f'<figure><figcaption><b>{chart.heading}</b></figcaption><div class="plot">'
        f'<div class="scale"><span>{chart.label(chart.most)}</span><span>{chart.label(0)}</span></div>'
        f'<svg role="img" aria-label="{escape(chart.heading)}: {escape(ends)}" viewBox="0 0 100 {_TALL:.0f}" '
        f'preserveAspectRatio="none">{_grid()}{shapes}</svg></div><div class="axis">'
        f"<span>{chart.start:.0f}</span><span>{chart.unit}</span><span>{last}</span></div></figure>"
    )


def _line(chart: Chart, end: float, lane: int, points: Points) -> str:
    placed = [
        (100 * (x - chart.start) / (end - chart.start), _TALL * (1 - y / chart.most))
        for x, y in points
    ]
    drawn = " ".join(f"{x:.2f},{y:.2f}" for x, y in placed)
    if len(points) == 1:  # a dot: a short line with round ends
        drawn += f" {placed[0][0] + 0.01:.2f},{placed[0][1]:.2f}"
    return f'<polyline class="hue-{lane}" points="{drawn}"/>'


def _grid() -> str:
    heights = (0.0, _TALL / 2, _TALL)
    return "".join(
        f'<line class="grid" x1="0" x2="100" y1="{y:.0f}" y2="{y:.0f}"/>' for y in heights
    )


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<li><i class="dot hue-{at}"></i>{escape(name)}</li>' for at, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def _tokens(height: float) -> str:
    return f"{height:.0f}" if height == round(height) else f"{height:.1f}"


def _share(height: float) -> str:
    return f"{height:.0%}"
