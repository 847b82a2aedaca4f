"""SpecExec (arXiv 2406.02532): tokens per pass keep growing with the tree's budget."""

from itertools import pairwise

from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.papers.harness import Harness
from app.bench.rows import Check, Row, row
from app.bench.summary import counts_of
from engine.request import SamplingParams

BUDGETS = (16, 64, 256, 1024)
TEMPERATURE, DEEP = 0.6, 32
PROMPTS, TOKENS = 16, 64
TOGETHER = 4  # prompts in one pass: nothing is timed here


def show(instrument: Harness) -> Row:
    """Growing from 16 to 1024 nodes; at least 4 tokens per pass at 256, on word problems."""
    lanes = {nodes: _lane(nodes) for nodes in BUDGETS}
    conditions = Conditions(
        sampling=SamplingParams(temperature=TEMPERATURE),
        max_tokens=TOKENS,
        repeats=1,
        concurrent=TOGETHER,
        warm_up=False,
    )
    prompts = instrument.prompts.problems[:PROMPTS]
    measured = instrument.run(1, prompts, tuple(lanes.values()), conditions)
    counted = {nodes: counts_of(measured.of(lane)) for nodes, lane in lanes.items()}
    found = {nodes: counts.emitted / counts.passes for nodes, counts in counted.items()}
    checks = [Check("tokens per pass at 256 nodes", found[256], 4.0)]
    for less, more in pairwise(BUDGETS):
        checks.append(Check(f"{more} nodes over {less}", found[more] / found[less], 1.001))
    figures = {f"{lanes[n].name}, tokens per pass": value for n, value in found.items()}
    return row("SpecExec", checks, figures)


def _lane(nodes: int) -> Lane:
    return Lane(f"{nodes} nodes", "specexec", length="fixed", depth=DEEP, nodes=nodes)
