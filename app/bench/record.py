"""A benchmark for machines: every number in one JSON object."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.bench.report import BenchReport
from app.bench.run import Sample
from app.errors import OutputFileError
from app.placement.plans import dtype_name


def write_record(file: Path, report: BenchReport) -> None:
    """Write the object; raises OutputFileError."""
    try:
        file.write_text(json.dumps(as_record(report), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputFileError(f"the file {file} cannot be written: {error.strerror}") from error


def as_record(report: BenchReport) -> dict[str, Any]:
    """Machine, model, conditions, lanes with their summaries, and every run; seconds throughout."""
    measurement = report.measurement
    return {
        "machine": asdict(report.machine),
        "model": {
            "name": measurement.facts.name,
            "parameters": measurement.facts.parameters,
            "layers": measurement.facts.layers,
            "dtype": dtype_name(report.spec),
            "inflate": report.spec.inflate,
            "device": report.spec.device,
        },
        "conditions": asdict(measurement.conditions),
        "skipped": measurement.skipped,
        "lanes": [asdict(summary) for summary in report.lanes],
        "samples": [_sample(sample) for sample in measurement.samples],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    """One run, without its tokens; ``prompts`` has one entry for each request."""
    return {
        "lane": sample.lane,
        "group": sample.group,
        "repeat": sample.repeat,
        "seconds": sample.seconds,
        "prompts": [
            {
                "prompt": answer.prompt,
                "prompt_tokens": answer.stats.prompt_tokens,
                "emitted": answer.stats.emitted,
                "passes": answer.stats.passes,
                "drafted": answer.stats.drafted,
                "accepted": answer.stats.accepted,
                "first_seconds": answer.first_seconds,
                "prompt_seconds": answer.stats.prompt_seconds,
                "decode_seconds": answer.stats.decode_seconds,
            }
            for answer in sample.answers
        ],
    }
