"""Lossless: every drafter gives plain decoding's tokens, greedy and seeded, in float32."""

import subprocess
import sys
from pathlib import Path

from app.bench.lanes import PLAIN_LANE, Lane
from app.bench.options import Conditions
from app.bench.papers.harness import Harness
from app.bench.rows import Check, Row, row
from engine.platform.cores import usable_threads
from engine.request import PLAIN, SamplingParams

PROMPTS, TOKENS, EVERY = 2, 48, 8  # takes one open question of EVERY
ROOT = Path(__file__).resolve().parents[3]
LAWS = ("tests/laws/test_lossless.py", "tests/engine/speculation/test_verify.py")
PLUGINS = ("xdist", "timeout")
SAMPLED = "test_verify or joint_law or enumerated_law"  # what greedy lanes show is not shown twice

SAMPLINGS = {
    "greedy": SamplingParams(),
    "seeded, temperature 0.8": SamplingParams(0.8, top_p=0.95, seed=7),
}


def show(instrument: Harness) -> Row:
    """All drafters on problems, edits and open questions; in a checkout also the laws by enumeration and chi-square."""
    engine = instrument.loaded(1).engine()
    lanes = [Lane(PLAIN_LANE, PLAIN)]
    lanes += [Lane(n, n, length="fixed") for n in engine.facts.drafters if n != PLAIN]
    lanes += [Lane(f"{n}, adaptive", n) for n in engine.facts.drafters if n != PLAIN]
    lanes.append(Lane("auto", "auto"))
    prompts = (
        *instrument.prompts.problems[:PROMPTS],
        *instrument.prompts.edits[::5][:PROMPTS],
        *instrument.prompts.questions(())[::EVERY],
    )
    checks = []
    figures: dict[str, float] = {}
    for name, sampling in SAMPLINGS.items():
        conditions = Conditions(sampling=sampling, max_tokens=TOKENS, repeats=1, warm_up=False)
        found = instrument.run(1, prompts, lanes, conditions)
        figures[f"{name}: answers compared"] = len(found.samples) - len(prompts)
        agree = len(lanes) - len(found.differences)
        checks.append(Check(f"{name}: lanes that agree", agree, len(lanes)))
    if all((ROOT / file).exists() for file in LAWS):
        instrument.progress("the laws, by enumeration and chi-square")
        hold, said = laws()
        checks.append(Check(f"laws by enumeration and chi-square ({said})", float(hold), 1.0))
    return row("Lossless", checks, figures)


def laws() -> tuple[bool, str]:
    """Whether the tests of the laws pass, in processes of their own, and what they end with.

    Other plug-ins of pytest that are installed here have no say: one of them warns, which fails.
    """
    plugins = (part for name in PLUGINS for part in ("-p", name))
    workers = usable_threads() if usable_threads() > 1 else 0  # one would wait for another process
    options = ("-q", f"-n{workers}", "--dist=worksteal", "-p", "no:cacheprovider", "-k", SAMPLED)
    alone = ("--disable-plugin-autoload", *plugins)
    command = [sys.executable, "-m", "pytest", *alone, *options, *LAWS]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = (ran.stdout.strip() or ran.stderr.strip() or f"exit code {ran.returncode}").splitlines()
    return ran.returncode == 0, said[-1].strip("= ")
