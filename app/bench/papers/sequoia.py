"""Sequoia (arXiv 2402.12374): optimal trees, drawn without replacement, make most of a budget."""

from collections.abc import Sequence
from dataclasses import replace

from app.bench.lanes import Lane
from app.bench.measure import Measurement
from app.bench.options import Conditions
from app.bench.papers.harness import Baseline, Harness, over_best, per_pass, ranked
from app.bench.rows import Check, Row, row
from engine.request import SamplingParams

OWN = "sequoia"
BUDGETS, TEMPERATURES = (16, 64, 256), (0.6, 1.0)
ARITIES = (2, 3, 4)
DEEP = 16  # levels that are allowed
PROMPTS, TOKENS = 10, 64
SWEPT = {16: 4, 64: 4, 256: 2}  # prompts of the sweep
FINALISTS, CLOSE = 2, 0.85  # rivals that stay, if they are so close to the best
REPEATS = {16: 20, 64: 4, 256: 3}  # of a hundred drawn answers a ratio is known to a twentieth
TOGETHER = {16: 10, 64: 10, 256: 4}  # requests in one pass: nothing is timed here

Cell = tuple[float, int]  # temperature and budget


def show(instrument: Harness) -> Row:
    """More tokens per pass than chains, k-ary trees and SpecInfer; still more with a larger budget."""
    checks: list[Check] = []
    figures: dict[str, float] = {}
    for temperature in TEMPERATURES:
        own: dict[int, float] = {}
        for nodes in BUDGETS:
            rival, found = compared(instrument, (temperature, nodes))
            own[nodes] = found[OWN]
            name = f"T {temperature}, {nodes} nodes"
            checks.append(Check(f"{name}, over {rival.name}", rival.ratio, 1.0))
            figures |= {f"{name}, {lane}": value for lane, value in found.items()}
        checks.append(Check(f"T {temperature}, 256 over 64", own[256] / own[64], 1.001))
    return row("Sequoia", checks, figures)


def compared(instrument: Harness, cell: Cell) -> tuple[Baseline, dict[str, float]]:
    """Sequoia against the best of its rivals, and tokens per pass of all that stayed."""
    _, nodes = cell
    lanes = [_sequoia(nodes), *_rivals(instrument, cell)]
    measured = _run(instrument, cell, lanes, REPEATS[nodes], PROMPTS)
    return over_best(measured, lanes[0], per_pass), per_pass(measured)


def _sequoia(nodes: int) -> Lane:
    return Lane(OWN, "sequoia", length="fixed", depth=DEEP, nodes=nodes)


def _rivals(instrument: Harness, cell: Cell) -> list[Lane]:
    """The best of a sweep over all others, and those that come close to it."""
    _, nodes = cell
    exact = _sequoia(nodes)
    lanes = [
        Lane("chain", "chain", length="fixed", depth=min(nodes, DEEP), nodes=nodes),
        replace(exact, name="SpecInfer", options=(("replacement", 1.0),)),
        *(replace(exact, name=f"{k}-ary", options=(("arity", float(k)),)) for k in ARITIES),
    ]
    found = per_pass(_run(instrument, cell, lanes, 1, SWEPT[nodes]))
    first, *others = ranked(found, lanes)[:FINALISTS]
    return [first, *(lane for lane in others if found[lane.name] > CLOSE * found[first.name])]


def _run(
    instrument: Harness, cell: Cell, lanes: Sequence[Lane], repeats: int, prompts: int
) -> Measurement:
    temperature, nodes = cell
    conditions = Conditions(
        sampling=SamplingParams(temperature=temperature),
        max_tokens=TOKENS,
        repeats=repeats,
        concurrent=TOGETHER[nodes],
        queued=prompts,
        warm_up=False,
    )
    return instrument.run(1, instrument.prompts.problems[:prompts], lanes, conditions)
