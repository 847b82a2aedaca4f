"""The command ``bench offload``: a model of more than 4 GB in 1 GB of memory, from this disk."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.bench.machine import Machine, describe_machine
from app.bench.offload.checkpoint import write_inflated
from app.bench.offload.plan import Found, Lane, Order, Task
from app.bench.offload.rows import FASTER, PLAIN, TREES, rows
from app.bench.options import OffloadOptions
from app.bench.papers.command import summary
from app.bench.papers.prompts import load_prompts
from app.bench.papers.row import Row
from app.errors import RequestFailed
from app.models.catalog import resolve
from app.progress import show_progress
from app.request import Message
from app.text.chat_text import ChatText
from engine.request import ModelSpec

ROUNDS = 3
PROMPTS, TOKENS = 3, 48  # of trees
PLAIN_TOKENS = 3  # every token is a pass, and passes differ by the disk's pace alone


def bench_offload(options: OffloadOptions) -> int:
    """Build the model, measure it streamed and resident, print the rows; 0 only if all hold."""
    started = time.perf_counter()
    spec = resolve(options.settings, options.model)
    if spec.draft_folder is None:
        raise RequestFailed(f"{options.model} has no draft model; choose a model that has one")
    machine = describe_machine()
    with _folder(options) as folder:
        try:
            write_inflated(Path(spec.folder), options.inflate, folder, show_progress)
            found = _measured(options, spec, folder)
        finally:
            show_progress("")
    shown = rows(*found, options.limit)
    _print(machine, options, shown)
    if options.json is not None:
        _write(options.json, machine, options, shown)
    sys.stdout.write(summary(shown, time.perf_counter() - started) + "\n")
    return 0 if all(one.holds for one in shown) else 1


@contextmanager
def _folder(options: OffloadOptions) -> Iterator[Path]:
    """The folder of the large model: a named one stays, another is removed."""
    if options.folder is not None:
        yield options.folder
        return
    options.settings.home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="offload-", dir=options.settings.home) as folder:
        yield Path(folder)


def _measured(options: OffloadOptions, spec: ModelSpec, folder: Path) -> tuple[Found, Found]:
    text = ChatText.load(Path(spec.folder))
    asked = options.prompts or load_prompts(None, 1).problems
    prompts = tuple(text.encode_chat([Message("user", turns[0])]) for turns in asked[:PROMPTS])
    draft, stops = str(spec.draft_folder), tuple(sorted(text.stop_tokens))
    streamed = Order(
        str(folder), draft, options.limit, stops, tuple(_tasks(prompts)), rounds=ROUNDS
    )
    whole = Task(PLAIN, 0.0, prompts, TOKENS)
    resident = Order(str(folder), draft, None, stops, (whole,), rounds=0)
    return run(streamed, show_progress), run(resident, show_progress)


def _tasks(prompts: Sequence[tuple[int, ...]]) -> Iterator[Task]:
    """Plain and trees take turns: the disk's pace drifts within minutes."""
    for prompt in prompts:
        for temperature in FASTER:
            yield Task(PLAIN, temperature, (prompt,), PLAIN_TOKENS)
            yield Task(TREES, temperature, (prompt,), TOKENS)


def run(order: Order, progress: Callable[[str], None]) -> Found:
    """Measure in a process of its own; raises RequestFailed with what it said if it breaks."""
    where = "streamed" if order.resident is not None else "resident"
    with subprocess.Popen(
        [sys.executable, "-m", "app.bench.offload.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[3],
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(asdict(order)))
        process.stdin.close()
        found = None
        for line in process.stdout:
            told = json.loads(line)
            found = told.get("found", found)
            if "progress" in told:
                progress(f"{where}: {told['progress']}")
        said = process.stderr.read().strip().splitlines()
    if found is None or process.returncode != 0:
        why = said[-1] if said else f"exit code {process.returncode}"
        raise RequestFailed(f"the {where} model could not be measured: {why}")
    return _found(found)


def _found(content: dict[str, Any]) -> Found:
    lanes = tuple(
        Lane(**{**lane, "ids": tuple(tuple(ids) for ids in lane["ids"])})
        for lane in content["lanes"]
    )
    knots = tuple((rows, seconds) for rows, seconds in content["knots"])
    return Found(**{**content, "lanes": lanes, "knots": knots})


def _print(machine: Machine, options: OffloadOptions, shown: Sequence[Row]) -> None:
    lines = [
        f"{machine.cpu}, {machine.cores} cores, torch {machine.torch}, {machine.date}, float32",
        f"{options.model}, feed-forward parts {options.inflate} times as wide, the same function",
        f"{options.limit / 1e6:.0f} MB of memory for it, the rest read from disk in every pass",
    ]
    for one in shown:
        lines += [f"\n{one.claim}: {'holds' if one.holds else 'MISSED'}"]
        lines += [f"  {part}" for part in one.says.split("; ")]
        lines += [f"    {name}: {value:.3f}" for name, value in one.figures]
    sys.stdout.writelines(f"{line}\n" for line in [*lines, ""])
    sys.stdout.flush()


def _write(file: Path, machine: Machine, options: OffloadOptions, shown: Sequence[Row]) -> None:
    content = {
        "machine": asdict(machine),
        "inflate": options.inflate,
        "limit": options.limit,
        "rows": [{**asdict(one), "figures": dict(one.figures)} for one in shown],
    }
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
