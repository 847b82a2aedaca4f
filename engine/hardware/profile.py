"""HardwareProfile: what a machine has and how fast it was measured to be; plain frozen values."""

from dataclasses import dataclass, field
from typing import Any

GIB = 2**30
_SYSTEM = 2 * GIB  # of an imagined machine: the operating system, a desktop and a browser


@dataclass(frozen=True, slots=True)
class Gpu:
    """One CUDA device; memory in bytes, rates None where nothing was measured."""

    name: str
    free: int
    total: int
    copy_rate: float | None = None  # bytes/s read of its own memory
    matrix_rate: float | None = None  # multiply-adds x 2 per second, bfloat16
    upload_rate: float | None = None  # bytes/s from pinned host memory


@dataclass(frozen=True, slots=True)
class Ram:
    """Memory that this process may use, in bytes: the machine's, or less by a control group."""

    total: int
    available: int  # now, what the system can free at once included
    limit: str = "the machine"  # who sets it


@dataclass(frozen=True, slots=True)
class Rates:
    """What takes time to measure, and is therefore remembered; None: not measured."""

    memory: float | None = None  # bytes/s that all cores together read
    matrix: float | None = None  # multiply-adds x 2 per second, float32
    disk: float | None = None  # bytes/s, sequential, of the models folder, page cache bypassed
    gpus: tuple[tuple[float, float, float], ...] = ()  # (copy, matrix, upload) of each GPU


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """Everything that a plan may depend on."""

    processor: str
    cores: float  # that this process may keep busy: affinity and quota count
    instructions: tuple[str, ...]  # of those in ``platform.instructions``
    ram: Ram
    gpus: tuple[Gpu, ...] = ()
    disk_free: int = 0  # bytes, where models go
    rates: Rates = field(default_factory=Rates)

    @property
    def gpu(self) -> Gpu | None:
        """The device with most free memory: models are not split over several."""
        return max(self.gpus, key=lambda gpu: gpu.free, default=None)


def imagined(gpu: int, ram: int) -> HardwareProfile:
    """A machine that one does not have: bytes of its GPU (0: none) and of its RAM."""
    gpus = (Gpu("imagined", gpu, gpu),) if gpu else ()
    available = max(ram - _SYSTEM, ram // 2)
    return HardwareProfile(
        processor="imagined",
        cores=8,
        instructions=("avx2",),
        ram=Ram(ram, available, "imagined"),
        gpus=gpus,
    )


def rates_from(stored: dict[str, Any]) -> Rates:
    """Rates out of JSON; raises TypeError or ValueError when it is something else."""
    gpus = tuple((float(c), float(m), float(u)) for c, m, u in stored["gpus"])
    memory, matrix, disk = (_rate(stored[name]) for name in ("memory", "matrix", "disk"))
    return Rates(memory, matrix, disk, gpus)


def _rate(value: Any) -> float | None:
    if value is None:
        return None
    rate = float(value)
    if not 0 < rate < float("inf"):
        raise ValueError(f"a rate of {rate}")
    return rate
