"""Lossless: every drafter gives plain decoding's tokens, greedy and seeded, in float32."""

import subprocess
import sys
from pathlib import Path

from app.bench.claims.instrument import Instrument
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import PLAIN, Lane
from app.bench.options import Conditions
from engine.request import SamplingParams

PROMPTS, TOKENS, CATEGORIES_EACH = 3, 64, 4
ROOT = Path(__file__).resolve().parents[3]
LAWS = ("tests/laws/test_lossless.py", "tests/engine/decode/test_verify.py")


def show(instrument: Instrument) -> Row:
    """All drafters on all kinds of prompts; in a checkout also the laws by enumeration and chi-square."""
    engine = instrument.loaded(1).engine()
    lanes = [Lane(PLAIN, "none")]
    lanes += [Lane(n, n, length="fixed") for n in engine.facts.drafters if n != "none"]
    lanes += [Lane(f"{n}, adaptive", n) for n in engine.facts.drafters if n != "none"]
    prompts = (
        *instrument.prompts.problems[:PROMPTS],
        *instrument.prompts.edits[::5][:PROMPTS],
        *instrument.prompts.questions(())[::CATEGORIES_EACH],
    )
    checks = []
    figures: dict[str, float] = {}
    for name, sampling in (
        ("greedy", SamplingParams()),
        ("seeded, temperature 0.8", SamplingParams(0.8, top_p=0.95, seed=7)),
    ):
        conditions = Conditions(sampling=sampling, max_tokens=TOKENS, repeats=1, warm_up=False)
        found = instrument.run(1, prompts, [*lanes, Lane("auto", "auto")], conditions)
        differing = len(found.differences)
        figures[f"{name}: answers compared"] = len(found.samples) - len(prompts)
        checks.append(Check(f"{name}: lanes that agree", len(lanes) - differing, len(lanes)))
    laws = _laws(instrument)
    if laws is not None:
        checks.append(Check("laws by enumeration and chi-square", laws, 1.0))
    return row("Lossless", checks, figures)


def _laws(instrument: Instrument) -> float | None:
    """1 if the tests of the laws pass; None where there are no tests: outside a checkout."""
    if not all((ROOT / file).exists() for file in LAWS):
        return None
    instrument.progress("the laws, by enumeration and chi-square")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LAWS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    return float(ended.returncode == 0)
