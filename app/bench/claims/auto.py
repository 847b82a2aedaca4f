"""Auto: as fast as the best single drafter of each kind of question, never slower than plain."""

from dataclasses import replace

from app.bench.claims.instrument import Instrument, over_best, rates
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import PLAIN, Lane
from app.bench.options import Conditions
from app.bench.run import Measurement

INFLATE = 8
ADAPTIVE = Lane("auto", "auto")
TOKENS = 64
FIRST = 6  # questions at the start of the session


def show(instrument: Instrument) -> Row:
    """At least 0.95 of the best single drafter in every category, at least 0.97 of plain.

    Every question once: of eight drafters one always suits the words of two questions, so which
    one is the best of a category is told by its other questions (``over_best``).
    """
    engine = instrument.loaded(INFLATE).engine()
    singles = [Lane(PLAIN, "none")]
    singles += [Lane(name, name) for name in engine.facts.drafters if name != "none"]
    conditions = Conditions(max_tokens=TOKENS, repeats=1)
    # One measurement, so that every drafter may remember earlier questions.
    # What a session learns on its first questions is not counted, for any drafter.
    categories = (("first", instrument.prompts.problems[:FIRST]), *instrument.prompts.open)
    prompts = [turns for _, group in categories for turns in group]
    whole = instrument.race(INFLATE, prompts, [*singles, ADAPTIVE], conditions)
    checks, first = [], 1
    figures: dict[str, float] = {}
    for category, group in categories:
        part = _part(whole, range(first, first + len(group)))
        first += len(group)
        if category == "first":
            continue
        found, best = rates(part), over_best(part, ADAPTIVE)
        adaptive = found.pop(ADAPTIVE.name)
        checks.append(Check(f"{category}: over {best.name}", best.ratio, 0.95))
        checks.append(Check(f"{category}: over plain", adaptive / found[PLAIN], 0.97))
        figures |= {f"{category}, {name}, tokens/s": rate for name, rate in found.items()}
        figures[f"{category}, {ADAPTIVE.name}, tokens/s"] = adaptive
    return row("Auto", checks, figures)


def _part(whole: Measurement, groups: range) -> Measurement:
    """The prompts of one category; each prompt is a group of its own."""
    return replace(whole, samples=tuple(s for s in whole.samples if s.group in groups))
