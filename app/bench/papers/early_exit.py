"""DEL (arXiv 2504.05598): choosing exit and length every round beats any fixed pair."""

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.papers.harness import Harness, over_best, ranked, rates
from app.bench.rows import Check, Row, row

PASS = 0.03  # seconds of a row, at most
EXITS, LENGTHS = (1, 2, 4, 6), (1, 2, 4, 8)
ADAPTIVE = Lane("dynamic exit", "early_exit", length="dynamic_exit")
CHAT = ("writing", "roleplay", "humanities", "stem", "qa")
SWEEP = Conditions(max_tokens=24, repeats=1, warm_up=False)
# Prompts of the sweep, and pairs that stay. Of two prompts of a kind the pair in the middle of a
# sweep was as fast as the best one or a tenth slower than the middle of all.
SWEPT, FINALISTS = 6, 3
# Once each: one pair suits the words of one prompt. Edits are half as long as other answers.
PROMPTS, EDITS, TOKENS = 10, 16, 64


def show(instrument: Harness) -> Row:
    """At least the best static pair, and 1.1 times the median one, on three kinds of task."""
    kinds = {
        "word problems": instrument.prompts.problems[:PROMPTS],
        "edit chores": instrument.prompts.edits[:EDITS],
        "chat": instrument.prompts.questions(CHAT)[:PROMPTS],
    }
    conditions = Conditions(max_tokens=TOKENS, repeats=1)
    inflate = instrument.inflation(PASS)
    lanes = [_fixed(exit_layer, length) for exit_layer in EXITS for length in LENGTHS]
    checks = []
    figures: dict[str, float] = {"inflate": inflate}
    for kind, prompts in kinds.items():
        swept = rates(instrument.race(inflate, prompts[:SWEPT], lanes, SWEEP))
        pairs = ranked(swept, lanes)
        middle = pairs[len(pairs) // 2]
        finalists = list(dict.fromkeys([*pairs[:FINALISTS], middle]))
        measured = instrument.race(inflate, prompts, [*finalists, ADAPTIVE], conditions)
        found, best = rates(measured), over_best(measured, ADAPTIVE)
        over_middle = found[ADAPTIVE.name] / found[middle.name]
        checks.append(Check(f"{kind}: over the best pair ({best.name})", best.ratio, 1.0))
        checks.append(Check(f"{kind}: over the median pair ({middle.name})", over_middle, 1.1))
        figures |= {f"{kind}, {name}, swept, tokens/s": rate for name, rate in swept.items()}
        figures |= {f"{kind}, {name}, tokens/s": rate for name, rate in found.items()}
    return row("DEL", checks, figures)


def _fixed(exit_layer: int, length: int) -> Lane:
    return Lane(
        f"exit {exit_layer} length {length}", "early_exit", length="fixed", depth=length,
        options=(("exit_layer", float(exit_layer)),),
    )  # fmt: skip
