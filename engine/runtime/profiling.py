"""What a pass of the target costs on this machine, and whether its rows round alike."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from engine.interfaces.target import UNLIMITED, LayerSource, Target
from engine.request import Calibration
from engine.runtime.rounding import RowComparison, varied
from engine.speculation.sampling import check_finite
from engine.speculation.tree import DraftTree, chain
from engine.statistics.pass_cost import PassCost

# A large model gets the first few. Matrix kernels change after 6 rows, where the seventh may cost a
# quarter of a pass and the eighth nothing; a line between 6 and 8 would price both alike. Of 4-bit
# weights three rows take half a pass more than two, and the fourth a whole one.
PROFILE_ROWS = (1, 8, 4, 2, 16, 6, 3, 7)
WIDER_ROWS = (64, 32, 12)  # after those at which the target's own blocks begin
PROFILE_REPEATS = 5
PROFILE_SECONDS = 2.0  # of waiting for a first answer are enough
NARROW, NARROW_SECONDS = 5.0, 0.75  # passes of a row that a width takes; more of those are measured
PROFILE_CONTEXT, PROFILE_CHUNK = (
    512,
    64,
)  # tokens, and how many are read before others are listened to
CONTEXT_ROWS = 16  # of the wider passes after that many tokens
WIDE_ROWS = (1, 33, 65, 1, 129, 257, 513, 1025, 2049)  # root and tree, streamed
STREAMED_SECONDS = 30.0  # a model that is read in minutes is measured at few widths
WAITING = 0.05  # of a pass: it waited for the disk, and did not only meet it now and then
STEEP = 2.0  # passes of a row: wider ones than this are not measured, nor drafted for


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What the first passes of a target showed; they also build kernels, which no answer should pay for."""

    exact_rows: (
        int  # of a pass in which each row has the bits that it has alone, as far as was seen
    )
    seconds: dict[int, float]  # by rows, of a single pass each

    @property
    def widths(self) -> tuple[int, ...]:
        """Rows of the passes, a single row first."""
        return tuple(self.seconds)


def profile(target: Target, cost: PassCost) -> int:
    """Look at a target and measure what its passes cost; returns ``exact_rows``.

    Raises NumericalError for logits that are not finite: no answer could come from such weights.
    """
    check_weights(target)
    if target.source is not None:
        _profile_streamed(target, target.source, cost)
        return UNLIMITED
    seen = look(target)
    measure(target, cost, seen.widths)
    return seen.exact_rows


def look(target: Target) -> FirstLook:
    """Run a pass of each width and compare the bits; slot 0 is empty before and after."""
    equal: dict[int, bool] = {}
    with RowComparison(target) as comparison:
        started = time.perf_counter()
        for rows in (*PROFILE_ROWS, *target.row_blocks, *WIDER_ROWS):
            if len(equal) < 2 or time.perf_counter() - started < PROFILE_SECONDS / 2:
                equal[min(rows, comparison.most)] = comparison.equal(rows)
    return FirstLook(exact_rows(equal), comparison.seconds)


def measure(
    target: Target,
    cost: PassCost,
    widths: Sequence[int],
    slot: int = 0,
    interrupted: Callable[[], bool] = bool,
) -> bool:
    """Set ``cost`` to what passes of these widths take in an empty slot, which is empty afterwards.

    The first width is a single row. False: ``interrupted()`` came true meanwhile, nothing was changed.
    """
    started, rounds = time.perf_counter(), list[dict[int, float]]()
    try:
        for n in range(PROFILE_REPEATS):
            if n and time.perf_counter() - started > PROFILE_SECONDS / 2:  # the rest: a context
                break
            rounds.append(_round(target, widths, slot, interrupted))
        early = time.perf_counter() - started < 0.75 * PROFILE_SECONDS
        rounds += _narrow_rounds(target, rounds, slot, interrupted)
        late: dict[int, float] = {}
        if early and target.context > PROFILE_CONTEXT:
            late = _after_context(target, widths, slot, interrupted)
    except _Interrupted:
        return False
    cost.reset({})
    fit_rounds(rounds, cost)
    if late:
        cost.profile_context(PROFILE_CONTEXT, late)
    return True


def _after_context(
    target: Target, widths: Sequence[int], slot: int, interrupted: Callable[[], bool]
) -> dict[int, float]:
    """Seconds of a pass of one row, and of the usual drafts' most, after ``PROFILE_CONTEXT`` tokens."""
    try:
        for start in range(0, PROFILE_CONTEXT, PROFILE_CHUNK):
            if interrupted():
                raise _Interrupted
            target.feed(slot, varied(target, start, PROFILE_CHUNK))
        most = max(width for width in widths if width <= CONTEXT_ROWS)
        rows = {1: [chain([0])], most: [chain(varied(target, 0, most))]}
        return {
            width: median(timed(target, trees, slot) for _ in range(PROFILE_REPEATS))
            for width, trees in rows.items()
        }
    finally:
        target.crop(slot, 0)


@dataclass(frozen=True, slots=True)
class IdleMeasurement:
    """Prices of passes, in a slot that no conversation has; takes about three seconds."""

    target: Target
    cost: PassCost
    slots: int  # that conversations may have
    swaps: bool  # whether there is room for conversations that are swapped out
    found: Callable[[], Calibration]  # what ``cost`` comes to

    def run(self, interrupted: Callable[[], bool]) -> Calibration | None:
        """To be called while no request runs; None: ``interrupted()`` came true, or no slot is empty."""
        taken = {slot for slot in range(self.slots) if self.target.length(slot)}
        empty = next((slot for slot in range(self.slots) if slot not in taken), None)
        if empty is None or not self._put_away(taken):
            return None
        widths = sorted(self.cost.knots)
        done = measure(self.target, self.cost, widths, empty, interrupted)
        return self.found() if done else None

    def _put_away(self, taken: set[int]) -> bool:
        """Where slots share rows every pass reads all of them: these go, and come back with a request."""
        if self.target.shared_rows is None or not taken:
            return True
        if self.swaps:
            for slot in taken:
                self.target.swap_out(slot)
        return self.swaps


class _Interrupted(Exception):
    """A request came."""


def exact_rows(equal: Mapping[int, bool]) -> int:
    """How many rows a pass may have, where ``equal`` tells by rows whether each was as alone."""
    most = 1
    for rows, alike in sorted(equal.items()):
        if not alike:
            return most
        most = rows
    return UNLIMITED


def _narrow_rounds(
    target: Target,
    rounds: Sequence[Mapping[int, float]],
    slot: int,
    interrupted: Callable[[], bool],
) -> list[dict[int, float]]:
    """More rounds of the widths that cost little, where wide passes took the time for them.

    Whether one drafted token pays hangs on a single ratio. Measured once, on a machine that was busy
    just then, it said 1.7 instead of 1.2, and a whole session was decoded plainly.
    """
    single = rounds[0][1]
    narrow = [width for width, seconds in rounds[0].items() if seconds <= NARROW * single]
    found: list[dict[int, float]] = []
    started = time.perf_counter()
    while len(rounds) + len(found) < PROFILE_REPEATS:
        if time.perf_counter() - started > NARROW_SECONDS:
            break
        found.append(_round(target, narrow, slot, interrupted))
    return found


def _round(
    target: Target, widths: Sequence[int], slot: int, interrupted: Callable[[], bool]
) -> dict[int, float]:
    """Seconds of a pass of every width, the first of which is a single row.

    All are compared with that row, and wide ones are measured only once. It is asked three times:
    once it had taken three times as long as usual, and 64 rows of a 4-bit file, which take 23 passes
    of one, looked like 8.
    """
    half, times = len(widths) // 2, list[tuple[int, float]]()
    for width in (*widths[:half], widths[0], *widths[half:], widths[0]):
        if interrupted():
            raise _Interrupted
        times.append((width, timed(target, [chain(varied(target, 0, width))], slot)))
    single = median(seconds for width, seconds in times if width == widths[0])
    return dict(times) | {widths[0]: single}


def fit_rounds(rounds: Sequence[Mapping[int, float]], cost: PassCost) -> None:
    """Knots from several rounds of rows -> seconds, the first of them with a pass of every width.

    A machine that others use as well is faster in one second than in the next, by half and more. A
    curve of each width's luckiest pass would mix such seconds, so widths are compared within a round.
    """
    single = median(found[1] for found in rounds)
    for rows in rounds[0]:
        ratios = [found[rows] / found[1] for found in rounds if rows in found]
        cost.profile(rows, single * median(ratios))


@dataclass(frozen=True, slots=True)
class StreamedPass:
    """What was measured of one pass whose weights were read meanwhile."""

    rows: int
    seconds: float
    waited: float  # of them, for weights

    @property
    def busy(self) -> float:
        """Seconds of computing."""
        return self.seconds - self.waited


def fit_streamed(passes: Sequence[StreamedPass], cost: PassCost) -> None:
    """Knots and hidden rows from what passes computed, and from what reading takes.

    Reading and computing overlap, so a pass takes the longer of the two. The disk's pace changes
    from one pass to the next: of a pass that still waited for weights the whole tells how fast the
    disk was, and only its computing tells what the rows cost.
    """
    bound = [p.seconds for p in passes if p.waited > WAITING * p.seconds]
    reading = median(bound) if bound else 0.0
    busy: dict[int, float] = {}
    for one in passes:
        busy[one.rows] = min(one.busy, busy.get(one.rows, math.inf))
    for rows, seconds in busy.items():
        cost.profile(rows, max(seconds, reading))
    cost.hidden = _crossing(sorted(busy.items()), reading)


def _crossing(busy: Sequence[tuple[int, float]], reading: float) -> int:
    """The most measured rows, or rows between two measurements, that reading hides; 0: not one."""
    hidden = 0
    for (low, early), (high, late) in pairwise([(0, 0.0), *busy]):
        if late > reading:
            return int(low + (high - low) * max(0.0, reading - early) / (late - early))
        hidden = high
    return hidden


def _profile_streamed(target: Target, source: LayerSource, cost: PassCost) -> None:
    """Measure where the pass of a streamed target leaves its flat part: reading hides many rows."""
    passes: list[StreamedPass] = []
    started = time.perf_counter()
    for at, rows in enumerate(WIDE_ROWS):
        late = at > 2 and time.perf_counter() - started > STREAMED_SECONDS
        if late or rows > min(source.widest, target.context):
            break
        before = source.waited
        seconds = timed(target, [chain(varied(target, 0, rows))])
        passes.append(StreamedPass(rows, seconds, source.waited - before))
        if seconds > STEEP * passes[0].seconds:
            break
    fit_streamed(passes, cost)


def timed(target: Target, trees: list[DraftTree], slot: int = 0) -> float:
    """Seconds of a pass over an empty slot."""
    started = time.perf_counter()
    target.score([slot], trees)
    target.commit(slot, [])
    return time.perf_counter() - started


def check_weights(target: Target) -> None:
    """Raise NumericalError for weights that give no numbers; damage to one token its requests find."""
    (scores,) = target.score([0], [chain([0])])
    target.commit(0, [])
    check_finite(scores.logits[-1].amax())
