"""The profile of this machine: what it has in milliseconds, how fast it is from a measurement."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from engine.hardware import limits
from engine.hardware.profile import Gpu, HardwareProfile, Rates

_QUERY = ("--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits")
_PATIENCE = 5.0  # seconds for the driver's own tool


def profile(processor: str, models: Path, rates: Rates | None = None) -> HardwareProfile:
    """What this machine has now; torch is not imported, and only ``rates`` are what they were."""
    rates = Rates() if rates is None else rates
    return HardwareProfile(
        processor=processor,
        cores=limits.cores(),
        instructions=limits.instruction_sets(),
        ram=limits.ram(),
        gpus=_rated(gpus(), rates),
        disk_free=shutil.disk_usage(_existing(models)).free,
        rates=rates,
    )


def gpus() -> tuple[Gpu, ...]:
    """The devices that the driver's tool lists; none where there is no such tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    try:
        run = subprocess.run(
            [tool, *_QUERY], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):  # a driver in trouble is no GPU
        return ()
    return limits.parse_nvidia(run.stdout) if run.returncode == os.EX_OK else ()


def _rated(found: tuple[Gpu, ...], rates: Rates) -> tuple[Gpu, ...]:
    """Rates belong to the devices by their order; none if torch saw others than the driver."""
    if len(rates.gpus) != len(found):
        return found
    return tuple(
        replace(gpu, copy_rate=copy, matrix_rate=matrix, upload_rate=upload)
        for gpu, (copy, matrix, upload) in zip(found, rates.gpus, strict=True)
    )


def _existing(folder: Path) -> Path:
    """The folder, or the one above it that exists already."""
    return next(place for place in (folder, *folder.parents) if place.exists())
