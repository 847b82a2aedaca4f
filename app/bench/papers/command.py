"""The command ``bench seeds``: every claim in one run, a table, a file, an exit code."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from app.bench.machine import Machine, describe_machine
from app.bench.options import CLAIMS, SeedsOptions
from app.bench.papers.harness import Harness
from app.bench.papers.parallel import each_shown
from app.bench.papers.prompts import load_prompts
from app.bench.papers.row import Row
from app.progress import show_progress

EACH = 10  # open questions of every category


def show_claims(options: SeedsOptions) -> int:
    """Print each row as it is shown; 0 only if every row holds."""
    started = time.perf_counter()
    prompts = load_prompts(options.prompts, EACH)
    instrument = Harness(options.settings, options.model, prompts, show_progress)
    machine = describe_machine()
    _print(_head(machine))
    rows = []
    for row in each_shown(options.only or CLAIMS, instrument):
        rows.append(row)
        show_progress("")
        _print(_lines(row))
        if options.json is not None:  # after every row: a run that is broken off keeps the others
            _write(options.json, machine, rows)
    _print([summary(rows, time.perf_counter() - started)])
    return 0 if all(row.holds for row in rows) else 1


def summary(rows: list[Row], seconds: float) -> str:
    """The last line."""
    missed = [row.claim for row in rows if not row.holds]
    verdict = f"missed: {', '.join(missed)}" if missed else "every claim holds"
    return f"{len(rows) - len(missed)} of {len(rows)} claims hold in {seconds / 60:.1f} minutes; {verdict}"


def _head(machine: Machine) -> Iterator[str]:
    yield f"{machine.cpu}, {machine.cores} cores, torch {machine.torch}, {machine.date}, float32"
    yield (
        "tokens per second are measured on the inflated model: the same function, the same tokens, "
        "feed-forward parts several times as wide"
    )


def _lines(row: Row) -> Iterator[str]:
    yield f"\n{row.claim}: {'holds' if row.holds else 'MISSED'} ({row.seconds:.0f} s)"
    yield from (f"  {part}" for part in row.says.split("; "))


def _print(lines: Iterator[str] | list[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _write(file: Path, machine: Machine, rows: list[Row]) -> None:
    content = {"machine": asdict(machine), "rows": [_as_json(row) for row in rows]}
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _as_json(row: Row) -> dict[str, object]:
    return {**asdict(row), "figures": dict(row.figures)}
