"""SpecDec++ (arXiv 2405.19715): stopping by predicted rejection beats any fixed length."""

import json
from pathlib import Path

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.papers.harness import Harness, over_best, ranked, rates
from app.bench.rows import Check, Row, row

COSTS = (2, 4, 8, 16, 32)  # inflations to try: the first at which a draft step is cheap enough
CHEAP = 1 / 8  # of a target pass
LENGTHS = (1, 2, 3, 4, 5, 6, 8)
ADAPTIVE = Lane("acceptance head", "chain", length="acceptance_head", depth=20)
SWEEP = Conditions(max_tokens=32, repeats=1, warm_up=False)
SWEPT, FINALISTS = 9, 3  # one prompt of SWEPT for the sweep; lengths that stay
PROMPTS, TOKENS = 15, 64  # of each kind, once: one length suits the words of one prompt


def show(instrument: Harness) -> Row:
    """At least 1.05 times the best fixed length; the head predicts rejections (AUC 0.75)."""
    share, inflate = 1.0, COSTS[0]
    for inflate in COSTS:
        share = instrument.loaded(inflate).draft_share()
        if share < CHEAP:
            break
    prompts = (
        *instrument.prompts.problems[:PROMPTS],
        *instrument.prompts.edits[:PROMPTS],
        *instrument.prompts.questions((), 4)[::3][:PROMPTS],
    )
    fixed = [Lane(f"length {k}", "chain", length="fixed", depth=k) for k in LENGTHS]
    conditions = Conditions(max_tokens=TOKENS, repeats=1)
    swept = rates(instrument.race(inflate, prompts[::SWEPT], fixed, SWEEP))
    finalists = ranked(swept, fixed)[:FINALISTS]
    measured = instrument.race(inflate, prompts, [*finalists, ADAPTIVE], conditions)
    found, best = rates(measured), over_best(measured, ADAPTIVE)
    auc = _auc(instrument)
    checks = [
        Check(f"over the best fixed ({best.name})", best.ratio, 1.05),
        Check("AUC for rejection", auc, 0.75),
        Check("target passes per draft step", 1 / share, 1 / CHEAP),
    ]
    figures = {f"{name}, swept, tokens/s": rate for name, rate in swept.items()}
    figures |= {f"{name}, tokens/s": rate for name, rate in found.items()}
    figures["inflate"] = inflate
    return row("SpecDec++", checks, figures)


def _auc(instrument: Harness) -> float:
    """Of the shipped head, on prompts that it was not trained on; its training wrote it down."""
    folder = instrument.loaded(COSTS[0]).spec.acceptance_head
    if folder is None:
        return 0.0
    card = json.loads((Path(folder) / "head.json").read_text(encoding="utf-8"))
    return float(card["figures"]["auc"])
