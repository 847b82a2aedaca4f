"""Sequoia (arXiv 2402.12374): optimal trees, drawn without replacement, make most of a budget."""

from app.bench.claims.instrument import Instrument, tokens_per_pass
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import Lane
from app.bench.options import Conditions
from engine.request import SamplingParams

BUDGETS, TEMPERATURES = (16, 64, 256), (0.6, 1.0)
ARITIES = (2, 3, 4)
DEEP = 24  # levels that are allowed
PROMPTS, TOKENS, REPEATS = 10, 64, {16: 3, 64: 2, 256: 1}


def show(instrument: Instrument) -> Row:
    """More tokens per pass than chains, k-ary trees and SpecInfer; still more with a larger budget."""
    checks, figures = [], {}
    for temperature in TEMPERATURES:
        best = {}
        for nodes in BUDGETS:
            found = _measured(instrument, temperature, nodes)
            best[nodes] = found.pop("sequoia")
            figures[f"T {temperature}, {nodes} nodes, sequoia"] = best[nodes]
            for name, value in found.items():
                figures[f"T {temperature}, {nodes} nodes, {name}"] = value
            rival = max(found, key=lambda name: found[name])
            over = best[nodes] / found[rival]
            checks.append(Check(f"T {temperature}, {nodes} nodes, over {rival}", over, 1.0))
        checks.append(Check(f"T {temperature}, 256 over 64", best[256] / best[64], 1.001))
    return row("Sequoia", checks, figures)


def _measured(instrument: Instrument, temperature: float, nodes: int) -> dict[str, float]:
    exact = {"length": "fixed", "depth": DEEP, "nodes": nodes}
    lanes = [
        Lane("sequoia", "sequoia", **exact),  # type: ignore[arg-type]
        Lane("chain", "chain", length="fixed", depth=min(nodes, DEEP), nodes=nodes),
        Lane("SpecInfer", "sequoia", **exact, options=(("replacement", 1.0),)),  # type: ignore[arg-type]
        *(
            Lane(f"{k}-ary", "sequoia", **exact, options=(("arity", float(k)),))  # type: ignore[arg-type]
            for k in ARITIES
        ),
    ]
    conditions = Conditions(
        sampling=SamplingParams(temperature=temperature),
        max_tokens=TOKENS,
        repeats=REPEATS[nodes],
    )
    return tokens_per_pass(
        instrument.run(1, instrument.prompts.problems[:PROMPTS], lanes, conditions)
    )
