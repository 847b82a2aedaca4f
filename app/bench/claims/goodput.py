"""SmartSpec (arXiv 2406.14066): lengths by goodput hold at every load."""

from app.bench.claims.instrument import Instrument, over_best, rates
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import PLAIN, Lane
from app.bench.options import Conditions

INFLATE = 8
LOADS, LENGTHS = (1, 2, 4, 8), (1, 2, 3, 4, 6)
ADAPTIVE = Lane("goodput", "chain", length="goodput", depth=8)
TOKENS = 40
PROMPTS = {1: 24, 2: 24, 4: 32, 8: 32}  # once each: one length suits the words of one prompt
QUEUED = {1: 3, 2: 4, 4: 8, 8: 8}  # prompts before the next lane's turn: the machine's mood changes


def show(instrument: Instrument) -> Row:
    """At least 0.97 of the better of off and the best fixed length at every load, above somewhere."""
    lanes = [
        Lane(PLAIN, "none"),
        *(Lane(f"length {k}", "chain", length="fixed", depth=k) for k in LENGTHS),
        ADAPTIVE,
    ]
    mixed = [
        p
        for pair in zip(instrument.prompts.problems, instrument.prompts.questions(()), strict=False)
        for p in pair
    ]
    checks, over = [], []
    figures: dict[str, float] = {}
    for load in LOADS:
        # They are submitted at once, so that the load stays what it is while they last.
        conditions = Conditions(
            max_tokens=TOKENS,
            repeats=1,
            concurrent=load,
            queued=min(QUEUED[load], PROMPTS[load]),
            warm_up=False,
        )
        measured = instrument.run(INFLATE, mixed[: PROMPTS[load]], lanes, conditions)
        found, best = rates(measured), over_best(measured, ADAPTIVE)
        adaptive = found.pop(ADAPTIVE.name)
        over.append(best.ratio)
        checks.append(Check(f"{load} at once, over {best.name}", best.ratio, 0.97))
        figures |= {f"{load} at once, {name}, tokens/s": rate for name, rate in found.items()}
        figures[f"{load} at once, {ADAPTIVE.name}, tokens/s"] = adaptive
    checks.append(Check("at its best load", max(over), 1.0))
    return row("SmartSpec", checks, figures)
