"""The machine that was measured on: what a number means nothing without."""

from dataclasses import dataclass
from datetime import UTC, datetime

from app.placement.machine import cores, processor


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
        cores=cores(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
