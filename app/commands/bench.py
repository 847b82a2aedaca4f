"""The command ``bench``: load, measure, print the table, write the file for machines."""

import sys
from dataclasses import replace
from pathlib import Path

from app.bench.machine import describe_machine
from app.bench.options import BenchOptions
from app.bench.record import write_record
from app.bench.report import BenchReport
from app.bench.run import measure
from app.bench.summary import summarize
from app.bench.table import table
from app.errors import RequestFailed
from app.models.catalog import resolve
from app.placement.dtype import place_with_dtype
from app.progress import show_progress
from app.text.chat_text import ChatText
from app.worker.engine_process import build_engine
from engine.hardware.footprint import LLAMA_CPP
from engine.hardware.plan import PlanConstraints
from engine.request import ModelSpec

EXACT = "float32"  # unless another is asked for


def bench(options: BenchOptions) -> int:
    """Measure in this process, so that the pipe to an engine of its own is not measured too."""
    report = _measured(options, bench_spec(options))
    sys.stdout.writelines(f"{line}\n" for line in table(report))
    sys.stdout.flush()
    if options.json is not None:
        write_record(options.json, report)
    return 0


def bench_spec(options: BenchOptions) -> ModelSpec:
    """What to load: as many slots as requests at once, each with a whole context."""
    concurrent = options.conditions.concurrent
    spec = replace(
        resolve(options.settings, options.model), inflate=options.inflate, slots=concurrent
    )
    exact = None if spec.backend == LLAMA_CPP else EXACT
    wishes = PlanConstraints(batch=concurrent)
    return place_with_dtype(options.settings, spec, options.dtype or exact, wishes).spec


def _measured(options: BenchOptions, spec: ModelSpec) -> BenchReport:
    text = ChatText.load(Path(spec.folder))
    try:
        show_progress(f"loading {spec.name}")
        engine = build_engine(spec)
        sys.stderr.writelines(f"{note}\n" for note in engine.facts.notes)
        measurement = measure(
            engine, text, options.prompts, options.lanes, options.conditions, show_progress
        )
    finally:
        show_progress("")
    if not measurement.samples:
        raise RequestFailed(
            f"nothing was measured: no prompt fits the context of {engine.facts.context} tokens"
        )
    return BenchReport(describe_machine(), spec, measurement, summarize(measurement))
