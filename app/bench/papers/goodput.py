"""SmartSpec (arXiv 2406.14066): lengths by goodput hold at every load."""

from collections.abc import Sequence

from app.bench.lanes import PLAIN_LANE, Lane
from app.bench.measure import Measurement
from app.bench.options import Conditions
from app.bench.papers.harness import Harness, over_best, ranked, rates
from app.bench.prompt_files import Turns
from app.bench.rows import Check, Row, row
from app.errors import RequestFailed
from engine.request import PLAIN

INFLATE = 8
LOADS, LENGTHS = (1, 2, 4, 8), (1, 2, 3, 4, 6)
OFF, ADAPTIVE = Lane(PLAIN_LANE, PLAIN), Lane("goodput", "chain", length="goodput", depth=8)
TOKENS = 40
SWEPT, FINALISTS = 8, 2  # prompts of the sweep; lengths that stay
PROMPTS = 32  # once each: one length suits the words of one prompt
QUEUED = 16  # prompts that are submitted at once


def show(instrument: Harness) -> Row:
    """At least 0.97 of the better of off and the best fixed length at every load, above somewhere."""
    pairs = zip(instrument.prompts.problems, instrument.prompts.questions(()), strict=False)
    mixed = [prompt for pair in pairs for prompt in pair]
    if len(mixed) <= SWEPT:
        raise RequestFailed(
            f"it needs more than {SWEPT} prompts but gets {len(mixed)} here: two open questions of each "
            "category count, so give a file with more categories"
        )
    checks, over = [], []
    figures: dict[str, float] = {}
    for load in LOADS:
        # The sweep's prompts are other ones than those that count.
        swept = rates(_run(instrument, load, mixed[:SWEPT], [_fixed(k) for k in LENGTHS]))
        finalists = ranked(swept, [_fixed(k) for k in LENGTHS])[:FINALISTS]
        prompts = mixed[SWEPT : SWEPT + PROMPTS]
        measured = _run(instrument, load, prompts, [OFF, *finalists, ADAPTIVE])
        found, best = rates(measured), over_best(measured, ADAPTIVE)
        over.append(best.ratio)
        checks.append(Check(f"{load} at once, over {best.name}", best.ratio, 0.97))
        figures |= {f"{load} at once, {name}, swept, tokens/s": v for name, v in swept.items()}
        figures |= {f"{load} at once, {name}, tokens/s": rate for name, rate in found.items()}
    checks.append(Check("at its best load", max(over), 1.0))
    return row("SmartSpec", checks, figures)


def _fixed(length: int) -> Lane:
    return Lane(f"length {length}", "chain", length="fixed", depth=length)


def _run(
    instrument: Harness, load: int, prompts: Sequence[Turns], lanes: Sequence[Lane]
) -> Measurement:
    """Every prompt once; many are submitted at once, so that the load stays what it is meanwhile."""
    conditions = Conditions(
        max_tokens=TOKENS, repeats=1, concurrent=load, queued=QUEUED, warm_up=False
    )
    return instrument.race(INFLATE, prompts, lanes, conditions)
