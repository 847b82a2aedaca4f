"""SpecExec (arXiv 2406.02532): tokens per pass keep growing with the tree's budget."""

from dataclasses import dataclass
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
PARTS = 4  # that the prompts are dealt out to


@dataclass(frozen=True, slots=True)
class Part:
    """Every fourth prompt from ``first`` on."""

    budgets: tuple[int, ...]
    tokens: int
    first: int
    end: int


def show(instrument: Harness) -> Row:
    """Growing from 16 to 1024 nodes; at least 4 tokens per pass at 256, on word problems."""
    parts = [Part(BUDGETS, TOKENS, at, PROMPTS) for at in range(min(PARTS, PROMPTS))]
    counted = instrument.spread_out(tokens_and_passes, parts)
    found = {
        nodes: sum(part[nodes][0] for part in counted) / sum(part[nodes][1] for part in counted)
        for nodes in BUDGETS
    }
    checks = [Check("tokens per pass at 256 nodes", found[256], 4.0)]
    for less, more in pairwise(BUDGETS):
        checks.append(Check(f"{more} nodes over {less}", found[more] / found[less], 1.001))
    return row(
        "SpecExec", checks, {f"{_lane(n).name}, tokens per pass": v for n, v in found.items()}
    )


def tokens_and_passes(instrument: Harness, part: Part) -> dict[int, tuple[int, int]]:
    """Of every budget, over some of the prompts."""
    lanes = {nodes: _lane(nodes) for nodes in part.budgets}
    prompts = instrument.prompts.problems[part.first : part.end : PARTS]
    conditions = Conditions(
        sampling=SamplingParams(temperature=TEMPERATURE),
        max_tokens=part.tokens,
        repeats=1,
        concurrent=len(prompts),  # nothing is timed here
        warm_up=False,
    )
    measured = instrument.run(1, prompts, tuple(lanes.values()), conditions)
    found = {}
    for nodes, lane in lanes.items():
        counts = counts_of(measured.of(lane))
        found[nodes] = counts.emitted, counts.passes
    return found


def _lane(nodes: int) -> Lane:
    return Lane(f"{nodes} nodes", "specexec", length="fixed", depth=DEEP, nodes=nodes)
