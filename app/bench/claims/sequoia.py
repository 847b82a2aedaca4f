"""Sequoia (arXiv 2402.12374): optimal trees, drawn without replacement, make most of a budget."""

from collections.abc import Sequence
from dataclasses import replace

from app.bench.claims.instrument import Instrument, over_best, ranked, tokens_per_pass
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import Lane
from app.bench.options import Conditions
from app.bench.run import Measurement
from engine.request import SamplingParams

BUDGETS, TEMPERATURES = (16, 64, 256), (0.6, 1.0)
ARITIES = (2, 3, 4)
DEEP = 16  # levels that are allowed
PROMPTS, TOKENS = 10, 64
SWEPT, FINALISTS, CLOSE = (
    4,
    2,
    0.85,
)  # prompts of the sweep; rivals that go on, if they are so close
REPEATS = {16: 4, 64: 3, 256: 1}
TOGETHER = 4  # requests in one pass: nothing is timed here


def show(instrument: Instrument) -> Row:
    """More tokens per pass than chains, k-ary trees and SpecInfer; still more with a larger budget."""
    checks: list[Check] = []
    figures: dict[str, float] = {}
    for temperature in TEMPERATURES:
        best = {}
        for nodes in BUDGETS:
            rivals = _rivals(instrument, temperature, nodes)
            measured = _run(instrument, temperature, [_sequoia(nodes), *rivals], REPEATS[nodes])
            found = tokens_per_pass(measured)
            rival = over_best(measured, _sequoia(nodes), tokens_per_pass)
            cell = f"T {temperature}, {nodes} nodes"
            checks.append(Check(f"{cell}, over {rival.name}", rival.ratio, 1.0))
            figures |= {f"{cell}, {name}": value for name, value in found.items()}
            best[nodes] = found["sequoia"]
        checks.append(Check(f"T {temperature}, 256 over 64", best[256] / best[64], 1.001))
    return row("Sequoia", checks, figures)


def _sequoia(nodes: int) -> Lane:
    return Lane("sequoia", "sequoia", length="fixed", depth=DEEP, nodes=nodes)


def _rivals(instrument: Instrument, temperature: float, nodes: int) -> list[Lane]:
    """The best of a sweep over all others, and those that come close to it."""
    exact = _sequoia(nodes)
    lanes = [
        Lane("chain", "chain", length="fixed", depth=min(nodes, DEEP), nodes=nodes),
        replace(exact, name="SpecInfer", options=(("replacement", 1.0),)),
        *(replace(exact, name=f"{k}-ary", options=(("arity", float(k)),)) for k in ARITIES),
    ]
    found = tokens_per_pass(_run(instrument, temperature, lanes, 1, SWEPT))
    first, *others = ranked(found, lanes)[:FINALISTS]
    return [first, *(lane for lane in others if found[lane.name] > CLOSE * found[first.name])]


def _run(
    instrument: Instrument,
    temperature: float,
    lanes: Sequence[Lane],
    repeats: int,
    prompts: int = PROMPTS,
) -> Measurement:
    conditions = Conditions(
        sampling=SamplingParams(temperature=temperature),
        max_tokens=TOKENS,
        repeats=repeats,
        concurrent=TOGETHER,
        queued=prompts,
        warm_up=False,
    )
    return instrument.run(1, instrument.prompts.problems[:prompts], lanes, conditions)
