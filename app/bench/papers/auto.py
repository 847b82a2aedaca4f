"""Auto: as fast as the best single drafter of each kind of question, never slower than plain."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from app.bench.lanes import PLAIN_LANE, Lane
from app.bench.measure import Measurement, Sample
from app.bench.options import Conditions
from app.bench.papers.harness import Harness, over_best, rates
from app.bench.prompt_files import Category
from app.bench.rows import Check, Row, row
from engine.request import PLAIN

INFLATE = 8
ADAPTIVE = Lane("auto", "auto")
TOKENS = 64
FIRST, FEW = 6, 2  # questions at the start of the session, and of the one that chooses who races
SWEPT, SHORTLY = 2, 32  # questions of a kind that every drafter answers, and tokens of these
SESSIONS = 3  # of the race, an odd number, where one takes no longer than SOON
SOON = 200.0  # seconds
CLOSE = 0.9  # of the best one's rate there, at least, in some kind


def show(instrument: Harness) -> Row:
    """At least 0.95 of the best single drafter in every category, at least 0.97 of plain.

    The beginnings of two answers of a kind, where drafting pays least, tell which drafters are worth
    a race and how much slower plain is. A drafter that is much slower in every kind, or that some other
    one beats in every kind, is the best of none. Those that are left race with auto over the other
    questions: of several drafters one always suits the words of two questions, so which one is the
    best of a kind is chosen by its other questions (``over_best``). With four of them a ratio scattered
    by a tenth. Some kinds have answers of two passes, where a hiccup of 20 ms is worth 6 %: a machine
    that is fast enough races in several sessions, and of each answer the usual seconds count.
    """
    engine = instrument.loaded(INFLATE).engine()
    singles = [Lane(PLAIN_LANE, PLAIN)]
    singles += [Lane(name, name) for name in engine.facts.drafters if name != PLAIN]
    kinds = instrument.prompts.open
    swept = [(name, group[:SWEPT]) for name, group in kinds]
    raced = [(name, group[SWEPT:] or group) for name, group in kinds]
    sweep = _session(instrument, swept, [*singles, ADAPTIVE], (FEW, SHORTLY))
    roughly = dict(_by_kind(sweep, swept, FEW))
    finalists = promising([rates(part) for part in roughly.values()], singles)
    checks: list[Check] = []
    figures: dict[str, float] = {}
    race = sessions(lambda: _session(instrument, raced, [*finalists, ADAPTIVE], (FIRST, TOKENS)))
    for kind, part in _by_kind(race, raced, FIRST):
        found, rough, best = rates(part), rates(roughly[kind]), over_best(part, ADAPTIVE)
        over_plain = rough[ADAPTIVE.name] / rough[PLAIN_LANE]
        checks.append(Check(f"{kind}: over {best.name}", best.ratio, 0.95))
        checks.append(Check(f"{kind}: over plain", over_plain, 0.97))
        figures |= {f"{kind}, {name}, swept, tokens/s": rate for name, rate in rough.items()}
        figures |= {f"{kind}, {name}, tokens/s": rate for name, rate in found.items()}
    return row("Auto", checks, figures)


def promising(kinds: Sequence[Mapping[str, float]], lanes: Sequence[Lane]) -> list[Lane]:
    """Those that may be the best of a kind; ``kinds`` has the rates of all by name."""

    def near(lane: Lane) -> bool:
        return any(
            found[lane.name] >= CLOSE * max(found[one.name] for one in lanes) for found in kinds
        )

    def beats(one: Lane, other: Lane) -> bool:
        return all(found[one.name] > found[other.name] for found in kinds)

    left = [lane for lane in lanes if near(lane)]
    return [lane for lane in left if not any(beats(other, lane) for other in left)]


def usual(sessions: Sequence[Measurement]) -> Measurement:
    """Of each lane's answer to each question the session in the middle, by its seconds."""
    answers: dict[tuple[str, int], list[Sample]] = {}
    for session in sessions:
        for sample in session.samples:
            answers.setdefault((sample.lane, sample.prompt), []).append(sample)
    ordered = (sorted(same, key=lambda sample: sample.seconds) for same in answers.values())
    return replace(sessions[0], samples=tuple(same[len(same) // 2] for same in ordered))


def sessions(session: Callable[[], Measurement]) -> Measurement:
    """The usual one of several, or the only one where it took long."""
    started = time.perf_counter()
    found = [session()]
    if time.perf_counter() - started <= SOON:
        found += [session() for _ in range(SESSIONS - 1)]
    return usual(found)


def _session(
    instrument: Harness,
    kinds: Sequence[Category],
    lanes: Sequence[Lane],
    asked: tuple[int, int],
) -> Measurement:
    """One session in which every drafter may remember earlier questions.

    ``asked`` says how many questions come first, and how many tokens each answer may have.
    """
    count, tokens = asked
    first = instrument.prompts.problems[:count]
    prompts = [*first, *(turns for _, group in kinds for turns in group)]
    return instrument.race(INFLATE, prompts, lanes, Conditions(max_tokens=tokens, repeats=1))


def _by_kind(
    whole: Measurement, kinds: Sequence[Category], first: int
) -> Iterator[tuple[str, Measurement]]:
    """A session without its first questions: what drafters learn on these is not counted."""
    start = first + 1
    for kind, group in kinds:
        yield kind, _part(whole, range(start, start + len(group)))
        start += len(group)


def _part(whole: Measurement, groups: range) -> Measurement:
    """The prompts of one category; each prompt is a group of its own."""
    return replace(whole, samples=tuple(s for s in whole.samples if s.group in groups))
