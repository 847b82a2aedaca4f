"""Lossless: every drafter gives plain decoding's tokens, greedy and seeded, in float32."""

import subprocess
import sys
from pathlib import Path
from typing import Self

from app.bench.claims.instrument import Instrument
from app.bench.claims.row import Check, Row, row
from app.bench.lanes import PLAIN, Lane
from app.bench.options import Conditions
from engine.request import SamplingParams

PROMPTS, TOKENS, CATEGORIES_EACH = 2, 48, 4
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
    with _Laws() as laws:  # nothing is timed here: both cores may work
        for name, sampling in (
            ("greedy", SamplingParams()),
            ("seeded, temperature 0.8", SamplingParams(0.8, top_p=0.95, seed=7)),
        ):
            conditions = Conditions(sampling=sampling, max_tokens=TOKENS, repeats=1, warm_up=False)
            found = instrument.run(1, prompts, [*lanes, Lane("auto", "auto")], conditions)
            differing = len(found.differences)
            figures[f"{name}: answers compared"] = len(found.samples) - len(prompts)
            checks.append(Check(f"{name}: lanes that agree", len(lanes) - differing, len(lanes)))
        instrument.progress("the laws, by enumeration and chi-square")
        passed = laws.passed()
    if passed is not None:
        checks.append(Check("laws by enumeration and chi-square", float(passed), 1.0))
    return row("Lossless", checks, figures)


class _Laws:
    """The tests of the laws in processes beside this one; none outside a checkout."""

    def __init__(self) -> None:
        self._running: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if all((ROOT / file).exists() for file in LAWS):
            options = ("-q", "-n2", "--dist=load", "-p", "no:cacheprovider")
            command = [sys.executable, "-m", "pytest", *options, *LAWS]
            quiet = subprocess.DEVNULL
            self._running = subprocess.Popen(command, cwd=ROOT, stdout=quiet, stderr=quiet)
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def passed(self) -> bool | None:
        """Wait for the end; None where there are no tests."""
        return None if self._running is None else self._running.wait() == 0
