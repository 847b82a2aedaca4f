"""What recent replies say of every drafter: their measurements faded, pooled and bounded."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest

from app.history.records import Conditions, MeasuredRun
from engine.request import Prior

WINDOW = 24  # replies that are looked at; a sixteenth is left of the oldest
# Half of the weight is gone after six replies: enough are left for a steady mean (about nine count),
# and a subject that changed is noticed within a few. Fading goes by replies and not by a drafter's
# own runs, because a drafter that once measured badly is not chosen again: only forgetting frees it.
HALF_LIFE = 6.0
LIFE_DAYS = 60.0  # weights and software change under the same name; linear, so nothing jumps
LARGEST_REPLY = 64.0  # tokens that a reply counts for at most: many say more than a long one
ELSEWHERE = 0.25  # what a token of another task says about this one
ENOUGH = 16.0  # tokens; other tasks fill up to here, and policies listen to fewer anyway
LEAST = 8.0  # tokens; less evidence than this says nothing, so that one bad start is no verdict
LEAST_TIMED = 2.0  # tokens; a single try says little, and its weight says so
FADED = 0.5  # tokens; until no more is left of a try, no session needs to repeat it
SLOWEST, FASTEST = 0.5, 10.0  # times plain decoding; beyond is a fault of the clock
CHEAPEST_PASS = 0.5  # plain passes that a drafted pass takes at least
NOTHING = 0.0, 0.0  # tokens evaluated and accepted


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A run, what its age leaves of it, and whether it did the same task."""

    run: MeasuredRun
    weight: float  # 0..1
    same_task: bool


def priors(runs: Iterable[MeasuredRun], conditions: Conditions) -> tuple[Prior, ...]:
    """One prior for each drafter that enough is known of, by name.

    ``runs`` are of the model, draft model and temperature class of ``conditions``. Acceptance
    depends on these and on the task, pace on the machine too. At most ``WINDOW`` replies of the same
    task and as many of all tasks count.
    """
    by_drafter: dict[str, list[_Weighed]] = {}
    for weighed in _weighed(list(runs), conditions.task):
        by_drafter.setdefault(weighed.run.drafter, []).append(weighed)
    made = (_prior(name, by_drafter[name], conditions.machine) for name in sorted(by_drafter))
    return tuple(prior for prior in made if prior is not None)


def _weighed(runs: Sequence[MeasuredRun], task: str) -> list[_Weighed]:
    """Every run that still counts; its age is the number of newer replies, of its task or of all."""
    ages = _ages(runs)
    ages_in_task = _ages([run for run in runs if run.task == task])
    found = []
    for run in runs:
        same = run.task == task
        weight = _fade(ages_in_task[run.reply] if same else ages[run.reply], run.days)
        if weight > 0:
            found.append(_Weighed(run, weight if same else ELSEWHERE * weight, same))
    return found


def _ages(runs: Sequence[MeasuredRun]) -> dict[int, int]:
    newest_first = sorted({run.reply for run in runs}, reverse=True)
    return {reply: age for age, reply in enumerate(newest_first)}


def _fade(age: int, days: float) -> float:
    """1 for the newest reply; a clock that was set back makes none newer than that."""
    if age >= WINDOW or not days < LIFE_DAYS:
        return 0.0
    return math.exp2(-age / HALF_LIFE) * (1 - max(days, 0.0) / LIFE_DAYS)


def _prior(drafter: str, weighed: Sequence[_Weighed], machine: str) -> Prior | None:
    depths = _depths(weighed)
    pace, tokens = _pace([w for w in weighed if w.run.machine == machine])
    shares, events = _own_shares(weighed)
    if not depths and pace is None and not shares:
        return None
    return Prior(drafter, depths, pace, tokens, shares, events)


def _depths(weighed: Sequence[_Weighed]) -> tuple[tuple[float, float], ...]:
    """(evaluated, accepted) per depth, up to the first depth that too little is known of."""
    same = _counts([one for one in weighed if one.same_task])
    elsewhere = _counts([one for one in weighed if not one.same_task])
    pooled = []
    for here, there in zip_longest(same, elsewhere, fillvalue=NOTHING):
        share = _share(here[0], there[0])
        evaluated, accepted = here[0] + share * there[0], here[1] + share * there[1]
        if evaluated < LEAST:
            break
        pooled.append((evaluated, min(accepted, evaluated)))  # rounding must not exceed all
    return tuple(pooled)


def _counts(weighed: Sequence[_Weighed]) -> list[tuple[float, float]]:
    """Tokens evaluated and accepted per depth, faded and summed."""
    rows = []
    for one in weighed:
        weight = one.weight * min(1.0, LARGEST_REPLY / max(_drafted_passes(one.run), 1))
        rows.append([(weight * looked, weight * taken) for looked, taken in _sound(one.run)])
    by_depth = (zip(*depth, strict=True) for depth in zip_longest(*rows, fillvalue=NOTHING))
    return [(sum(looked), sum(taken)) for looked, taken in by_depth]


def _sound(run: MeasuredRun) -> Iterator[tuple[int, int]]:
    """A reply's counts, up to the first that cannot be: a path is only walked downwards."""
    most: float = math.inf
    for evaluated, accepted in zip(run.evaluated, run.accepted, strict=False):
        if not 0 <= accepted <= evaluated <= most or evaluated == 0:
            return
        yield evaluated, accepted
        most = accepted


def _share(same: float, elsewhere: float) -> float:
    """The part of other tasks' evidence that is taken: what is lacking, up to ``ENOUGH``."""
    lacking = max(0.0, ENOUGH - same)
    return min(1.0, lacking / elsewhere) if elsewhere > 0 else 0.0


def _pace(weighed: Sequence[_Weighed]) -> tuple[float | None, float]:
    """Weighted median over replies, and the tokens it rests on; (None, 0) if they are too few.

    A median, because a reply during which another program was busy is off by any factor.
    """
    timed = [(one, _drafting_pace(one.run)) for one in weighed]
    votes = {same: [(p[0], one.weight * p[1]) for one, p in timed if p and one.same_task is same]
             for same in (True, False)}  # fmt: skip
    tokens = {same: sum(weight for _, weight in votes[same]) for same in votes}
    share = _share(tokens[True], tokens[False])
    total = tokens[True] + share * tokens[False]
    if sum(p[1] for _, p in timed if p) < LEAST_TIMED or total < FADED:
        return None, 0.0
    ballot = votes[True] + [(pace, share * weight) for pace, weight in votes[False]]
    return min(max(_median(ballot), SLOWEST), FASTEST), total


def _drafting_pace(run: MeasuredRun) -> tuple[float, float] | None:
    """(times plain decoding, tokens) of the passes that drafted; None if a clock says nothing.

    A drafter with nothing to propose decodes plainly: a token a pass, at plain decoding's cost.
    """
    proposing = _drafted_passes(run)
    idle = max(run.passes - proposing, 0)
    tokens = run.emitted - idle
    timed = 0 < run.seconds < math.inf and 0 < run.plain_seconds < math.inf
    if tokens <= 0 or proposing <= 0 or not timed:
        return None
    plain_pass = run.plain_seconds / run.emitted
    seconds = max(run.seconds - idle * plain_pass, CHEAPEST_PASS * proposing * plain_pass)
    return tokens * plain_pass / seconds, min(float(tokens), LARGEST_REPLY)


def _drafted_passes(run: MeasuredRun) -> int:
    """Passes with a draft: the first depth is evaluated in each of them."""
    return run.evaluated[0] if run.evaluated else 0


def _median(votes: Sequence[tuple[float, float]]) -> float:
    """The smallest value up to which at least half of the weight lies; there is some."""
    ordered = sorted(votes)
    totals = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(totals, totals[-1] / 2)][0]


def _own_shares(weighed: Sequence[_Weighed]) -> tuple[tuple[float, ...], float]:
    """Mean of what the drafter measured of itself, and the events that it rests on."""
    sums: list[float] = []
    total = 0.0
    for one in weighed:
        events = one.weight * _sound_events(one.run)
        total += events
        sums += [0.0] * (len(one.run.shares) - len(sums)) if events else []
        for kind, share in enumerate(one.run.shares if events else ()):
            sums[kind] += events * share
    if total < LEAST:
        return (), 0.0
    return tuple(min(taken / total, 1.0) for taken in sums), total


def _sound_events(run: MeasuredRun) -> float:
    """How much the run's shares count for; 0 unless they are shares of one whole."""
    shares_are = all(0 <= share <= 1 for share in run.shares) and sum(run.shares) <= 1 + 1e-6
    if not run.shares or not shares_are or not 0 < run.share_weight < math.inf:
        return 0.0
    return min(run.share_weight, LARGEST_REPLY)
