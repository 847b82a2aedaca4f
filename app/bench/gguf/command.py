"""The command ``bench gguf``: every type in one run, next to llama-cpp-python; a table, an exit code."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from app.bench.gguf.files import HIDDEN, INFLATE, draft_file, gguf_file
from app.bench.gguf.measure import measure_file
from app.bench.gguf.rows import rows
from app.bench.machine import Machine, describe_machine
from app.bench.options import GGUF_KINDS, GgufOptions
from app.bench.papers.command import summary
from app.bench.papers.prompts import load_prompts
from app.bench.papers.row import Row
from app.models.catalog import resolve
from app.progress import show_progress
from engine.request import ModelSpec

EACH = 4  # open questions of every category; with two, a kind scatters by 2 %


def bench_gguf(options: GgufOptions) -> int:
    """Make the files, measure them, print each type's rows; 0 only if every row holds."""
    started = time.perf_counter()
    spec = resolve(options.settings, options.model)
    prompts = load_prompts(options.prompts, EACH)
    machine = describe_machine()
    sys.stdout.write(
        f"{machine.cpu}, {machine.cores} cores, {machine.date}; {spec.name} with states of {HIDDEN} "
        f"numbers and feed-forward parts {INFLATE} times as wide: the same answers at a larger cost\n"
    )
    shown: list[Row] = []
    with _folder(options) as folder:
        try:
            for kind in options.only or GGUF_KINDS:
                file = gguf_file(Path(spec.folder), kind, folder, show_progress)
                drafted = _with_draft(spec, folder)
                fresh = rows(kind, measure_file(drafted, file, prompts, show_progress))
                show_progress("")
                _print(fresh)
                shown += fresh
                if options.json is not None:  # after every file: a broken run keeps the others
                    _write(options.json, machine, shown)
        finally:
            show_progress("")
    sys.stdout.write(summary(shown, time.perf_counter() - started) + "\n")
    return 0 if all(one.holds for one in shown) else 1


def _with_draft(spec: ModelSpec, folder: Path) -> ModelSpec:
    """The model's own draft as a GGUF file: a step of 0.2 ms took 1.2 ms in torch."""
    if spec.draft_folder is None:
        return spec
    file = draft_file(Path(spec.draft_folder), folder, show_progress)
    return replace(spec, draft_folder=str(file), draft_backend="llama_cpp")


@contextmanager
def _folder(options: GgufOptions) -> Iterator[Path]:
    """Where the files are: a named folder stays, another is removed."""
    if options.folder is not None:
        yield options.folder
        return
    with tempfile.TemporaryDirectory(prefix="slipstream-gguf-") as folder:
        yield Path(folder)


def _print(found: list[Row]) -> None:
    for one in found:
        sys.stdout.write(f"\n{one.claim}: {'holds' if one.holds else 'MISSED'}\n")
        sys.stdout.writelines(f"  {part}\n" for part in one.says.split("; "))
    sys.stdout.writelines(f"  {name} {value}\n" for name, value in found[0].figures)
    sys.stdout.flush()


def _write(file: Path, machine: Machine, shown: list[Row]) -> None:
    content = {
        "machine": asdict(machine),
        "rows": [{**asdict(one), "figures": dict(one.figures)} for one in shown],
    }
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
