"""The command ``bench``: load, measure, print the table, write the file for machines."""

import sys
from dataclasses import replace
from pathlib import Path

from typing_extensions import override

from app.bench.measure import Conversations, Measurement, Progress, finished, measure
from app.bench.options import BenchOptions
from app.bench.report import BenchReport, ResultFile, as_record, describe_machine
from app.bench.runners import Clock, EngineRunner, base_request
from app.bench.table import table
from app.errors import RequestFailed
from app.models.catalog import resolve
from app.placement.dtype import place_with_dtype
from app.progress import show_progress
from app.text.chat_text import ChatText
from app.worker.engine_process import build_engine
from engine.hardware.footprint import LLAMA_CPP
from engine.hardware.plan import PlanConstraints
from engine.request import ModelFacts, ModelSpec

EXACT = "float32"  # unless another is asked for


def bench(options: BenchOptions) -> int:
    """Measure in this process: the pipe to another one would be measured too."""
    report = _measured(options, bench_spec(options))
    sys.stdout.writelines(f"{line}\n" for line in table(report))
    sys.stdout.flush()
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


class _Written(Progress):
    """Writes the file for machines as the figures come."""

    def __init__(self, spec: ModelSpec, facts: ModelFacts, file: ResultFile) -> None:
        super().__init__(show_progress)
        self._machine, self._spec, self._facts = describe_machine(), spec, facts
        self._file = file

    @override
    def update(self, measurement: Measurement) -> None:
        self._file.update(lambda: as_record(self.report(measurement)))

    def report(self, measurement: Measurement) -> BenchReport:
        """With what is known of model and machine."""
        return BenchReport.of(self._machine, self._spec, self._facts, measurement)


def _measured(options: BenchOptions, spec: ModelSpec) -> BenchReport:
    text = ChatText.load(Path(spec.folder))
    conditions, file = options.conditions, ResultFile(options.json)
    try:
        show_progress(f"loading {spec.name}")
        engine = build_engine(spec)
        sys.stderr.writelines(f"{note}\n" for note in engine.facts.notes)
        context, together = engine.facts.context, conditions.together
        prompts = Conversations(text, context, options.prompts, together)
        clock = Clock.DECODING if together == 1 else Clock.WALL
        runner = EngineRunner(engine, base_request(conditions, text.stop_tokens), clock)
        runners = {lane.name: runner for lane in options.lanes}
        watcher = _Written(spec, engine.facts, file)
        measured = finished(measure(options.lanes, prompts, conditions, runners, watcher))
    finally:
        show_progress("")
    if not measured.samples:
        raise RequestFailed(f"nothing was measured: no prompt fits the context of {context} tokens")
    report = watcher.report(measured)
    file.write(as_record(report))
    return report
