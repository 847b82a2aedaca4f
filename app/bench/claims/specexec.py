"""SpecExec (arXiv 2406.02532): tokens per pass keep growing with the tree's budget."""

from itertools import pairwise

from app.bench.claims.instrument import Instrument, tokens_per_pass
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import Lane
from app.bench.options import Conditions
from engine.request import SamplingParams

BUDGETS = (16, 64, 256, 1024)
TEMPERATURE, DEEP = 0.6, 32
PROMPTS, TOKENS = 16, 80


def show(instrument: Instrument) -> Row:
    """Growing from 16 to 1024 nodes; at least 4 tokens per pass at 256, on word problems."""
    lanes = [_lane(nodes) for nodes in BUDGETS]
    conditions = Conditions(
        sampling=SamplingParams(temperature=TEMPERATURE), max_tokens=TOKENS, repeats=1
    )
    prompts = instrument.prompts.problems[:PROMPTS]
    found = tokens_per_pass(instrument.run(1, prompts, lanes, conditions))
    checks = [Check("tokens per pass at 256 nodes", found[_lane(256).name], 4.0)]
    for less, more in pairwise(BUDGETS):
        growth = found[_lane(more).name] / found[_lane(less).name]
        checks.append(Check(f"{more} nodes over {less}", growth, 1.001))
    return row("SpecExec", checks, {f"{n}, tokens per pass": v for n, v in found.items()})


def _lane(nodes: int) -> Lane:
    return Lane(f"{nodes} nodes", "specexec", length="fixed", depth=DEEP, nodes=nodes)
