"""Which machine measured: a short text that stays the same until the hardware or its use changes."""

import os
import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")  # Linux; elsewhere the standard library knows the name
CPU_FIELDS = ("model name", "Model", "Hardware", "cpu model")  # x86, ARM boards, MIPS


def machine_name(device: str, dtype: str, cpu_info: Path = CPU_INFO) -> str:
    """Processor, cores that this process may use, device and number format of the weights."""
    count = cores()
    noun = "core" if count == 1 else "cores"
    return f"{processor(cpu_info)}, {count} {noun}, {device}, {dtype}"


def cores() -> int:
    """Cores that this process may use: a container or ``taskset`` may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor(cpu_info: Path = CPU_INFO) -> str:
    """The name that the maker gave it, as far as it is known."""
    named = _fields(cpu_info)
    found = next((named[field] for field in CPU_FIELDS if named.get(field)), None)
    return " ".join((found or platform.processor() or platform.machine() or "cpu").split())


def _fields(cpu_info: Path) -> dict[str, str]:
    """Fields of the file; none where there is no such file."""
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
