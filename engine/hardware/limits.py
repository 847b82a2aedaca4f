"""What this machine has: memory, cores and instruction sets that this process may use, GPUs, disk.

Functions that read the system's files take the root of the file tree, for tests of other machines.
"""

import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from engine.hardware.profile import Gpu, HardwareProfile, Ram, Rates
from engine.platform.cores import control_groups, file_text, usable_cores
from engine.platform.instructions import instruction_sets

ROOT = Path("/")
_QUERY = ("--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits")
_DRIVER_SECONDS = 5.0  # for the driver's own tool
_MIB = 2**20
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")
_SLOW = ("memory.high", *_V2[1:])  # above it, version 2 stops the process for moments
_OUTER = re.compile(r"^hierarchical_memory_limit (\d+)$", re.MULTILINE)  # of groups out of sight


def this_machine(processor: str, models: Path, rates: Rates | None = None) -> HardwareProfile:
    """What this machine has now; torch is not imported, and only ``rates`` are what they were."""
    rates = Rates() if rates is None else rates
    return HardwareProfile(
        processor=processor,
        cores=usable_cores(),
        instructions=instruction_sets(),
        ram=ram(),
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
            [tool, *_QUERY], capture_output=True, text=True, timeout=_DRIVER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):  # a driver in trouble is no GPU
        return ()
    return parse_nvidia(run.stdout) if run.returncode == os.EX_OK else ()


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


def ram(root: Path = ROOT) -> Ram:
    """The machine's memory, or the room that the tightest control group leaves of it."""
    machine = _machine_ram(root)
    groups = (_group_ram(folder, *names) for folder, names in _memory_groups(root))
    return min(
        (machine, *(group for group in groups if group and group.total < machine.total)),
        key=lambda found: found.available,
    )


def resident(pid: int, root: Path = ROOT) -> int:
    """Bytes of a process that are in memory, mapped files included; 0 where the system does not tell."""
    fields = file_text(root / f"proc/{pid}/statm").split()
    return int(fields[1]) * mmap.PAGESIZE if len(fields) > 1 else 0


def parse_meminfo(text: str) -> Mapping[str, int]:
    """Bytes by name."""
    rows = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    return {name: 1024 * int(size) for name, size in rows}


def parse_nvidia(text: str) -> tuple[Gpu, ...]:
    """Devices out of ``nvidia-smi --query-gpu=name,memory.free,memory.total`` as bare CSV in MiB."""
    rows = (line.rsplit(",", 2) for line in text.splitlines() if line.count(",") >= 2)
    return tuple(
        Gpu(name.strip(), int(free) * _MIB, int(total) * _MIB)
        for name, free, total in rows
        if free.strip().isdigit() and total.strip().isdigit()
    )


def _machine_ram(root: Path) -> Ram:
    sizes = parse_meminfo(file_text(root / "proc/meminfo"))
    if "MemTotal" in sizes:
        total = sizes["MemTotal"]
        return Ram(total, min(total, sizes.get("MemAvailable", sizes.get("MemFree", 0))))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:  # macOS reports no more
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return Ram(total, total // 2)
    return Ram(0, 0, "unknown")


def _memory_groups(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    for folder in control_groups(root, "memory"):
        if (folder / _V2[0]).exists():
            yield folder, _V2
            yield folder, _SLOW
        else:
            yield folder, _V1


def _group_ram(folder: Path, limit: str, usage: str, cached: str) -> Ram | None:
    most, used = file_text(folder / limit).strip(), file_text(folder / usage).strip()
    if not (most.isdigit() and used.isdigit()):  # "max", or no such file
        return None
    stat = file_text(folder / "memory.stat")
    found, outer = re.search(rf"^{cached} (\d+)$", stat, re.MULTILINE), _OUTER.search(stat)
    total = min(int(most), int(outer[1])) if outer else int(most)
    free = total - int(used) + (int(found[1]) if found else 0)
    return Ram(total, max(0, min(free, total)), f"the control group's {limit}")
