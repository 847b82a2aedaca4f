"""What passes cost on this machine: measured curves that every length decision reads.

SmartSpec (arXiv 2406.14066) models a pass as c_kv * context + c_tok * tokens + c_const by least
squares. Here the token part is a curve through measured knots, because real machines are flat for a
few rows and steep later, and a factor that follows how busy the machine is right now. The factor
learns from every pass. The curve's shape learns from two passes of different widths in a row alone:
what a machine's mood does to one pass, it does to the next one as well.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import NamedTuple

FORGETTING = 0.98  # weight of the past per observation
OUTLIER = 4.0  # a pause of the whole machine says nothing about the curve
TRUSTED = 5.0  # observations before outliers are cut
WEATHER_RATE, KNOT_RATE = 0.15, 0.05
NEW_KNOT_RATE = 0.5  # of a line through its neighbours, which nobody measured there
MOST_BENT = log(2.0)  # between two passes in a row; more is an accident of one of them
SHARES = (0.2, 0.05, 0.6)  # of a draft step: what a row beside another may cost; the first: a guess
UNKNOWN_SECONDS = 1.0  # of any pass, before anything was measured: a flat curve


@dataclass
class LinearFit:
    """Least squares of y over x with exponential forgetting; neither part is ever negative."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        """One observation; outliers are cut once the line is trusted."""
        if self.weight > TRUSTED:
            y = min(y, OUTLIER * self.at(x))
        self.weight = FORGETTING * self.weight + 1
        self.x = FORGETTING * self.x + x
        self.y = FORGETTING * self.y + y
        self.xx = FORGETTING * self.xx + x * x
        self.xy = FORGETTING * self.xy + x * y

    def at(self, x: float) -> float:
        """The line's value; 0 before the first observation."""
        if self.weight == 0:
            return 0.0
        mean_x, mean_y = self.x / self.weight, self.y / self.weight
        spread = self.xx / self.weight - mean_x**2
        steepest = mean_y / mean_x if mean_x > 0 else 0.0  # through the origin
        slope = steepest / 2  # as long as all were alike
        if spread > 1e-9:
            slope = (self.xy / self.weight - mean_x * mean_y) / spread
        return mean_y + min(max(slope, 0.0), steepest) * (x - mean_x)


@dataclass
class PassCost:
    """Seconds of one target pass over some rows, behind some cached context.

    One value is shared by everything that decides lengths for one target; the engine feeds it.
    """

    knots: dict[int, float] = field(default_factory=dict)  # rows -> seconds, empty context
    per_context: float = 0.0  # seconds per cached token
    weather: float = 1.0  # how much slower the machine is right now than its curve
    overhead: float = 0.0  # seconds of a round outside draft and pass: verify, commit, emit
    hidden: int = 0  # rows that are computed while streamed weights are read, so for nothing
    _sorted: tuple[list[int], list[float]] | None = field(default=None, repr=False)
    _last: tuple[int, float] | None = field(default=None, repr=False)  # knot, log of its surprise

    def profile(self, rows: int, seconds: float) -> None:
        """A measurement made at load, nothing else running; of several of one width the smallest."""
        self.knots[rows] = min(seconds, self.knots.get(rows, seconds))
        self._sorted = None

    def profile_context(self, context: int, seconds: float) -> None:
        """A single row behind ``context`` cached tokens, after ``profile(1, ...)``."""
        self.per_context = max(0.0, (seconds - self._curve(1)) / context)

    def reset(self, knots: Mapping[int, float]) -> None:
        """Back to a measured curve, as if nothing had run since."""
        self.knots, self.weather, self.overhead = dict(knots), 1.0, 0.0
        self._sorted = self._last = None

    def observe(self, rows: int, context: int, seconds: float, overhead: float = 0.0) -> None:
        """One pass of the running engine, and what its round took besides draft and pass."""
        self.overhead += WEATHER_RATE * (min(overhead, seconds) - self.overhead)
        if not self.knots:
            self.profile(rows, seconds)
            return
        curve = self._curve(rows)
        usual = curve + self.per_context * context
        ratio = min(max(seconds / usual, 1 / OUTLIER), OUTLIER)
        self.weather += WEATHER_RATE * (ratio - self.weather)
        self._bend(rows, log(ratio), curve)

    def seconds(self, rows: int, context: int = 0) -> float:
        """Expected seconds of a round without its draft."""
        return self.overhead + self.weather * (self._curve(rows) + self.per_context * context)

    def nominal(self, rows: int, context: int = 0) -> float:
        """Seconds of the pass alone where nothing else makes the machine slower."""
        return self._curve(rows) + self.per_context * context

    def flat(self, factor: float) -> int:
        """The most rows that were measured at no more than ``factor`` passes of one; 0: unmeasured."""
        return max((n for n in self.knots if self._curve(n) <= factor * self._curve(1)), default=0)

    def each(self, rows: Sequence[int], context: int = 0) -> list[float]:
        """``seconds`` of every number of ``rows``, which never fall.

        Plain Python, piece by piece: every round asks for a few, and numpy takes longer to be called.
        """
        rest = self.overhead + self.weather * self.per_context * context
        if not self.knots:
            return [rest + self.weather * UNKNOWN_SECONDS] * len(rows)
        widths, values = self._sorted or self._points()
        at, start, height, slope = 0, widths[0], rest + self.weather * values[0], 0.0
        found: list[float] = []
        for width, value in zip(widths, values, strict=True):
            if at == len(rows):
                return found
            level, end = rest + self.weather * value, bisect_right(rows, width, at)
            if width > start:
                slope = (level - height) / (width - start)
            found += [height + slope * (count - start) for count in rows[at:end]]
            at, start, height = end, width, level
        return found + [height + slope * (count - start) for count in rows[at:]]

    def prices(
        self, pace: float, most: int, requests: int = 1, context: int = 0
    ) -> tuple[float, ...]:
        """Tokens that 0..most drafted rows of one request must bring, or plain is faster.

        ``requests`` share the pass, and the seconds of more rows are lost to all of them, each of
        which goes on at ``pace`` times plain decoding.
        """
        seconds = self.each(range(requests, requests + most + 1), context)
        lost, plain = pace * requests, seconds[0]
        return tuple([lost * (each / plain - 1) for each in seconds])

    def _curve(self, rows: int) -> float:
        """Linear between knots, never falling; beyond the last knot as steep as the last piece."""
        if not self.knots:
            return UNKNOWN_SECONDS
        widths, values = self._sorted or self._points()
        at = min(max(bisect_right(widths, rows), 1), max(len(widths) - 1, 1))
        if len(widths) == 1 or rows <= widths[0]:
            return values[0]
        slope = (values[at] - values[at - 1]) / (widths[at] - widths[at - 1])
        return values[at - 1] + slope * (rows - widths[at - 1])

    def _points(self) -> tuple[list[int], list[float]]:
        """Widths and their seconds, never falling; kept until a knot moves."""
        if self._sorted is None:
            widths = sorted(self.knots)
            self._sorted = widths, _rising([self.knots[width] for width in widths])
        return self._sorted

    def _bend(self, rows: int, surprise: float, curve: float) -> None:
        """Move the knots of this pass and the last one until both are as surprising.

        ``surprise`` is the logarithm of the pass's seconds over ``curve``, the curve's. A knot that shares a
        mean with its neighbours is compared with what it says itself, or it would move on and on.
        Far from all knots a new one is made.
        """
        knot = rows
        if rows not in self.knots:
            knot = min(self.knots, key=lambda known: abs(known - rows))
        last, new = self._last, not knot / 2 < rows < knot * 2
        if new:
            self.knots[rows], knot = self._curve(rows), rows
            self._sorted = None
        surprise += log((curve if knot == rows else self._curve(knot)) / self.knots[knot])
        self._last = knot, surprise
        if last is None or last[0] == knot:
            return
        bend = min(max(surprise - last[1], -MOST_BENT), MOST_BENT)
        self._scale(knot, exp((NEW_KNOT_RATE if new else KNOT_RATE) * bend))
        if not new:
            self._scale(last[0], exp(-KNOT_RATE * bend))

    def _scale(self, knot: int, factor: float) -> None:
        self.knots[knot] = max(self.knots[knot] * factor, 1e-9)
        self._sorted = None


def _rising(values: Sequence[float]) -> list[float]:
    """The nearest values that never fall: neighbours in the wrong order share their mean."""
    blocks: list[tuple[float, int]] = []  # (mean, how many)
    for value in values:
        mean, many = value, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, many = (before * count + mean * many) / (count + many), count + many
        blocks.append((mean, many))
    return [mean for mean, many in blocks for _ in range(many)]


class StepSeconds(NamedTuple):
    """A draft takes ``start`` + ``step`` for each of its steps + ``row`` for each drafted row."""

    start: float
    step: float
    row: float

    def of(self, steps: int, rows: int) -> float:
        """Seconds of ``steps`` steps, ``rows`` rows in all of them together; of none, 0."""
        return self.start + self.step * steps + self.row * rows if steps else 0.0


@dataclass
class DraftCost:
    """Seconds of one drafter's call: steps one after the other, each over a row of every request.

    A request may leave off before others do, so steps and rows are told apart. A row beside another
    costs a share of what the step costs alone; of a few shares the one counts that was nearest.
    """

    step: float = 0.0  # seconds of one step of one request, as measured at load; 0: not known
    lines: tuple[LinearFit, ...] = field(default_factory=lambda: tuple(LinearFit() for _ in SHARES))
    errors: list[float] = field(default_factory=lambda: [0.0] * len(SHARES))  # seconds, faded

    def observe(self, steps: int, rows: int, seconds: float) -> None:
        """One call."""
        for at, (share, line) in enumerate(zip(SHARES, self.lines, strict=True)):
            load = steps + share * (rows - steps)
            expected = line.at(load)
            if line.weight > TRUSTED and seconds <= OUTLIER * expected:
                self.errors[at] = FORGETTING * self.errors[at] + abs(seconds - expected)
            line.add(load, seconds)

    def parts(self) -> StepSeconds:
        """What steps and rows cost by now."""
        best = min(range(len(SHARES)), key=self.errors.__getitem__)
        share, line = SHARES[best], self.lines[best]
        start, each = 0.0, self.step
        if line.weight:
            start = line.at(0)
            each = line.at(1) - start
        return StepSeconds(start, each * (1 - share), each * share)

    def seconds(self, steps: int, rows: int) -> float:
        """Expected seconds."""
        return self.parts().of(steps, rows)
