"""A benchmark: what was measured, of what, where; for machines, every number in one JSON object."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.bench.measure import Measurement, Sample
from app.bench.summary import LaneSummary
from app.errors import OutputFileError
from app.files import replace_file
from app.placement.machine import processor
from app.placement.plans import dtype_name
from engine.platform.cores import usable_threads
from engine.request import ModelFacts, ModelSpec


@dataclass(frozen=True, slots=True)
class Machine:
    """Processor, threads and library of one measurement."""

    cpu: str
    cores: int  # that this process may use
    threads: int  # that torch uses
    torch: str  # version
    date: str  # of the measurement, UTC, ISO 8601


def describe_machine() -> Machine:
    """This machine, now."""
    import torch

    return Machine(
        cpu=processor(),
        cores=usable_threads(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What the table and the file for machines are written from."""

    machine: Machine
    spec: ModelSpec
    facts: ModelFacts
    measurement: Measurement
    lanes: tuple[LaneSummary, ...]


def write_record(file: Path | None, content: dict[str, Any]) -> None:
    """Write the whole file, if one is named; raises OutputFileError.

    It is written whenever there are more results: a run that ends early keeps them.
    """
    if file is None:
        return
    try:
        replace_file(file, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise OutputFileError(f"the file {file} cannot be written: {error.strerror}") from error


def as_record(report: BenchReport) -> dict[str, Any]:
    """Machine, model, conditions, lanes with their summaries, and every run; seconds throughout."""
    measurement = report.measurement
    return {
        "machine": asdict(report.machine),
        "model": {
            "name": report.facts.name,
            "parameters": report.facts.parameters,
            "layers": report.facts.layers,
            "dtype": dtype_name(report.spec),
            "inflate": report.spec.inflate,
            "device": report.spec.device,
        },
        "conditions": asdict(measurement.conditions),
        "skipped": measurement.skipped,
        "lanes": [asdict(summary) for summary in report.lanes],
        "samples": _runs(measurement.samples),
    }


def _runs(samples: tuple[Sample, ...]) -> list[dict[str, Any]]:
    """Every run, without its tokens; ``prompts`` has one entry for each request."""
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for sample in samples:
        place = {"lane": sample.lane, "group": sample.group, "repeat": sample.repeat}
        run = {**place, "seconds": sample.seconds, "prompts": []}
        key = (sample.lane, sample.group, sample.repeat)
        found.setdefault(key, run)["prompts"].append(_answer(sample))
    return list(found.values())


def _answer(sample: Sample) -> dict[str, Any]:
    stats = sample.stats
    return {
        "prompt": sample.prompt,
        "prompt_tokens": stats.prompt_tokens,
        "emitted": stats.emitted,
        "passes": stats.passes,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "near_ties": stats.near_ties,
        "first_seconds": sample.first_seconds,
        "prompt_seconds": stats.prompt_seconds,
        "decode_seconds": stats.decode_seconds,
    }
