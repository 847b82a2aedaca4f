"""DEL (arXiv 2504.05598): choosing exit and length every round beats any fixed pair."""

from statistics import median

from app.bench.claims.instrument import Instrument, over_best, rates
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import Lane
from app.bench.options import Conditions

INFLATE = 16
EXITS, LENGTHS = (1, 2, 4, 6), (1, 2, 4)
ADAPTIVE = Lane("dynamic exit", "early_exit", length="dynamic_exit")
CHAT = ("writing", "roleplay", "humanities", "stem", "qa")
PROMPTS, TOKENS, REPEATS = 3, 48, 2


def show(instrument: Instrument) -> Row:
    """At least the best static pair, and 1.1 times the median one, on three kinds of task."""
    fixed = [_fixed(e, length) for e in EXITS for length in LENGTHS]
    kinds = {
        "word problems": instrument.prompts.problems[:PROMPTS],
        "edit chores": instrument.prompts.edits[::4][:PROMPTS],
        "chat": instrument.prompts.questions(CHAT)[:PROMPTS],
    }
    conditions = Conditions(max_tokens=TOKENS, repeats=REPEATS)
    checks = []
    figures: dict[str, float] = {}
    for kind, prompts in kinds.items():
        measured = instrument.run(INFLATE, prompts, [*fixed, ADAPTIVE], conditions)
        found, best = rates(measured), over_best(measured, ADAPTIVE)
        adaptive = found.pop(ADAPTIVE.name)
        checks.append(Check(f"{kind}: over the best pair ({best.name})", best.ratio, 1.0))
        checks.append(
            Check(f"{kind}: over the median pair", adaptive / median(found.values()), 1.1)
        )
        figures |= {f"{kind}, {name}, tokens/s": rate for name, rate in found.items()}
        figures[f"{kind}, {ADAPTIVE.name}, tokens/s"] = adaptive
    return row("DEL", checks, figures)


def _fixed(exit_layer: int, length: int) -> Lane:
    return Lane(
        f"exit {exit_layer} length {length}", "early_exit", length="fixed", depth=length,
        options=(("exit_layer", float(exit_layer)),),
    )  # fmt: skip
