"""A finished benchmark: what was measured, of what, where."""

from dataclasses import dataclass

from app.bench.machine import Machine
from app.bench.run import Measurement
from app.bench.summary import LaneSummary
from engine.request import ModelSpec


@dataclass(frozen=True, slots=True)
class BenchReport:
    """What the table and the file for machines are written from."""

    machine: Machine
    spec: ModelSpec
    measurement: Measurement
    lanes: tuple[LaneSummary, ...]
