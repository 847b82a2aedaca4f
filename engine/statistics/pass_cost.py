"""What passes cost on this machine: measured curves that every length decision reads.

SmartSpec (arXiv 2406.14066) models a pass as c_kv * context + c_tok * tokens + c_const by least
squares. Here the token part is a curve through measured knots, because real machines are flat for a
few rows and steep later. And the context has a part for each row: a GPU reads keys and values once
for all of them, a processor also computes, as much for a row as reading takes. A factor follows how busy the machine is: it learns from every pass. The
shape of the curve learns only from two passes in a row of different widths: the load of the machine
slows both alike, so it cancels.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import NamedTuple

from engine.statistics.tuning import TUNING

UNKNOWN_SECONDS = 1.0  # of any pass before the first measurement: a flat curve


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
        if self.weight > TUNING.trusted:
            y = min(y, TUNING.outlier * self.at(x))
        memory = TUNING.fit_memory
        self.weight = memory * self.weight + 1
        self.x = memory * self.x + x
        self.y = memory * self.y + y
        self.xx = memory * self.xx + x * x
        self.xy = memory * self.xy + x * y

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
    """Seconds of one target pass over some rows, after some cached context.

    A ``context`` is that of all ``requests`` in the pass together; each has the same part of it and of the
    rows. Everything that decides lengths for one target shares one value; the engine feeds it.
    """

    knots: dict[int, float] = field(default_factory=dict)  # rows -> seconds, empty context
    per_context: float = 0.0  # seconds per cached token
    per_row: float = 0.0  # seconds per cached token of a request and row of that request
    load: float = 1.0  # how many times its curve a pass takes right now
    overhead: float = 0.0  # seconds of a round outside draft and pass: verify, commit, emit
    hidden: int = 0  # rows computed while streamed weights are read: they cost nothing
    _sorted: tuple[list[int], list[float]] | None = field(default=None, repr=False)
    _last: tuple[int, float] | None = field(default=None, repr=False)  # knot, log of its error

    def profile(self, rows: int, seconds: float) -> None:
        """A measurement made at load, while nothing else runs; the smallest of each width counts."""
        self.knots[rows] = min(seconds, self.knots.get(rows, seconds))
        self._sorted = None

    def profile_context(self, context: int, seconds: Mapping[int, float]) -> None:
        """Passes of a row, and of more, after ``context`` cached tokens; call ``profile`` first.

        ``seconds`` by rows, the fewest first.
        """
        more = [max(0.0, each - self._curve(rows)) / context for rows, each in seconds.items()]
        fewest, most = min(seconds), max(seconds)
        steepest = more[0] / fewest  # through the origin
        slope = (more[-1] - more[0]) / (most - fewest) if most > fewest else 0.0
        self.per_row = min(max(0.0, slope), steepest)
        self.per_context = more[0] - self.per_row * fewest

    def reset(self, knots: Mapping[int, float]) -> None:
        """Return to a measured curve and forget what ran since."""
        self.knots, self.load, self.overhead = dict(knots), 1.0, 0.0
        self._sorted = self._last = None

    def observe(
        self, rows: int, context: int, seconds: float, overhead: float = 0.0, requests: int = 1
    ) -> None:
        """One pass of the running engine; ``overhead`` is the rest of its round besides the draft."""
        self.overhead += TUNING.load_rate * (min(overhead, seconds) - self.overhead)
        if not self.knots:
            self.profile(rows, seconds)
            return
        curve = self._curve(rows)
        usual = curve + self._reading(rows, context, requests)
        ratio = min(max(seconds / usual, 1 / TUNING.outlier), TUNING.outlier)
        self.load += TUNING.load_rate * (ratio - self.load)
        self._bend(rows, log(ratio), curve)

    def seconds(self, rows: int, context: int = 0, requests: int = 1) -> float:
        """Expected seconds of a round without its draft."""
        return self.overhead + self.load * self.nominal(rows, context, requests)

    def nominal(self, rows: int, context: int = 0, requests: int = 1) -> float:
        """Seconds of the pass alone on an idle machine."""
        return self._curve(rows) + self._reading(rows, context, requests)

    def each(self, rows: Sequence[int], context: int = 0, requests: int = 1) -> list[float]:
        """``seconds`` of each of these ``rows``, which must not fall.

        Plain Python: every round asks for a few, and a numpy call takes longer.
        """
        row = self.load * self.per_row * context / requests
        level = self._level(rows, context)
        return [each + row * count for each, count in zip(level, rows, strict=True)]

    def _level(self, rows: Sequence[int], context: int) -> list[float]:
        """The same without what each row takes of the context."""
        rest = self.overhead + self.load * self.per_context * context
        if not self.knots:
            return [rest + self.load * UNKNOWN_SECONDS] * len(rows)
        widths, values = self._sorted or self._points()
        at, start, height, slope = 0, widths[0], rest + self.load * values[0], 0.0
        found: list[float] = []
        for width, value in zip(widths, values, strict=True):
            if at == len(rows):
                return found
            level, end = rest + self.load * value, bisect_right(rows, width, at)
            if width > start:
                slope = (level - height) / (width - start)
            found += [height + slope * (count - start) for count in rows[at:end]]
            at, start, height = end, width, level
        return found + [height + slope * (count - start) for count in rows[at:]]

    def prices(
        self, pace: float, most: int, requests: int = 1, context: int = 0
    ) -> tuple[float, ...]:
        """Tokens that 0..most drafted rows of one request must bring, or plain decoding is faster.

        ``requests`` share the pass. More rows cost each of them seconds, in which it would have
        decoded at ``pace`` times plain decoding.
        """
        seconds = self.each(range(requests, requests + most + 1), context, requests)
        lost, plain = pace * requests, seconds[0]
        return tuple([lost * (each / plain - 1) for each in seconds])

    def _reading(self, rows: int, context: int, requests: int) -> float:
        """What the cached tokens take."""
        return (self.per_context + self.per_row * rows / requests) * context

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

    def _bend(self, rows: int, error: float, curve: float) -> None:
        """Move the knots of this pass and the last one towards equal errors.

        ``error`` is the logarithm of the pass's seconds over ``curve``, the curve's. The error of
        a knot that shares a mean with its neighbours is taken from its own value, or it would never
        stop moving. A pass far from all knots makes a new one.
        """
        knot = rows
        if rows not in self.knots:
            knot = min(self.knots, key=lambda known: abs(known - rows))
        last, new = self._last, not knot / 2 < rows < knot * 2
        if new:
            self.knots[rows], knot = self._curve(rows), rows
            self._sorted = None
        error += log((curve if knot == rows else self._curve(knot)) / self.knots[knot])
        self._last = knot, error
        if last is None or last[0] == knot:
            return
        limit = log(TUNING.outlier)
        bend = min(max(error - last[1], -limit), limit)
        self._scale(knot, exp(TUNING.knot_rate * bend))
        if not new:
            self._scale(last[0], exp(-TUNING.knot_rate * bend))

    def _scale(self, knot: int, factor: float) -> None:
        self.knots[knot] = max(self.knots[knot] * factor, 1e-9)
        self._sorted = None


def _rising(values: Sequence[float]) -> list[float]:
    """The nearest values that never fall: neighbours in the wrong order share their mean."""
    blocks: list[tuple[float, int]] = []  # (mean, width)
    for value in values:
        mean, width = value, 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, width = (before * count + mean * width) / (count + width), count + width
        blocks.append((mean, width))
    return [mean for mean, width in blocks for _ in range(width)]


class StepSeconds(NamedTuple):
    """A draft takes ``start`` + ``step`` for each step + ``row`` for each drafted row."""

    start: float
    step: float
    row: float

    def of(self, steps: int, rows: int) -> float:
        """Seconds of ``steps`` steps with ``rows`` rows in all; 0 without steps."""
        return self.start + self.step * steps + self.row * rows if steps else 0.0


@dataclass
class DraftCost:
    """Seconds of one drafter's call: steps one after the other, each over a row of every request.

    A request may end its draft before others do, so steps and rows are counted separately. A further
    row of a step costs a share of the step; of a few candidate shares the best fitting one counts.
    """

    step: float = 0.0  # seconds of one step of one request, measured at load; 0: unknown

    def __post_init__(self) -> None:
        """One fit for each share that a further row may cost."""
        self._fits = [LinearFit() for _ in TUNING.row_shares]
        self._errors = [0.0] * len(self._fits)  # seconds, faded

    def observe(self, steps: int, rows: int, seconds: float) -> None:
        """One call."""
        for at, (share, fit) in enumerate(zip(TUNING.row_shares, self._fits, strict=True)):
            load = steps + share * (rows - steps)
            expected = fit.at(load)
            if fit.weight > TUNING.trusted and seconds <= TUNING.outlier * expected:
                self._errors[at] = TUNING.fit_memory * self._errors[at] + abs(seconds - expected)
            fit.add(load, seconds)

    def parts(self) -> StepSeconds:
        """What steps and rows cost, as known now."""
        best = min(range(len(TUNING.row_shares)), key=self._errors.__getitem__)
        share, fit = TUNING.row_shares[best], self._fits[best]
        start, each = 0.0, self.step
        if fit.weight:
            start = fit.at(0)
            each = fit.at(1) - start
        return StepSeconds(start, each * (1 - share), each * share)

    def seconds(self, steps: int, rows: int) -> float:
        """Expected seconds."""
        return self.parts().of(steps, rows)
