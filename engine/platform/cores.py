"""Cores that this process may keep busy: all of the machine, its affinity, or a container's quota.

Libraries start a thread for every core of the machine. In a container with two of sixteen cores they
then wait for each other: a GGUF file gave 22 tokens a second there, with two threads 199.
Functions that read the system's files take the root of the file tree, for tests of other machines.
Delete when torch, llama.cpp and OpenBLAS respect a quota by themselves.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

ROOT = Path("/")
_COUNTS = re.compile(r"\s*[1-9]\d{0,4}\s*(,\s*[1-9]\d{0,4}\s*)*")  # one for each level of nesting


def usable_cores(root: Path = ROOT) -> float:
    """Cores' worth of time: of the affinity, or a control group's share."""
    quotas = (share for folder in control_groups(root, "cpu") if (share := _quota(folder)))
    return min((float(_allowed()), *quotas))


def usable_threads() -> int:
    """Threads that compute at once without waiting for each other."""
    return max(1, math.ceil(usable_cores()))


def few_threads(environ: MutableMapping[str, str]) -> None:
    """Set OpenMP's number of threads where a quota allows fewer than there are cores.

    Torch and NumPy read it when they are loaded; they know the affinity by themselves. What is no number
    they would report, and take every core.
    """
    if not _COUNTS.fullmatch(environ.get("OMP_NUM_THREADS", "")):
        environ.pop("OMP_NUM_THREADS", None)
    if usable_threads() < _allowed():
        environ.setdefault("OMP_NUM_THREADS", str(usable_threads()))


def control_groups(root: Path, controller: str) -> Iterator[Path]:
    """The control group of this process and those above it, as far as they can be seen."""
    paths = parse_cgroup(file_text(root / "proc/self/cgroup"))
    top = root / "sys/fs/cgroup"
    mounts = {"": (top, top / "unified"), controller: (top / controller,)}
    for name, places in mounts.items():
        for mount in places:
            if name in paths and mount.is_dir():
                # inside a container the outer path does not exist, and the mount is the group
                inner = mount / paths[name].strip("/")
                yield from (at for at in (inner, *inner.parents) if at.is_relative_to(mount))


def parse_cgroup(text: str) -> Mapping[str, str]:
    """Path of this process by controller; the empty name is version 2's."""
    found = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        found.update(dict.fromkeys(names.split(","), path))
    return found


def file_text(file: Path) -> str:
    """Its content; empty where the system has no such file, or does not show it."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _allowed() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(folder: Path) -> float | None:
    """Cores' worth of time per period; None: no limit."""
    both = file_text(folder / "cpu.max").split()
    if not both:
        both = [file_text(folder / f"cpu.cfs_{part}_us").strip() for part in ("quota", "period")]
    if len(both) < 2 or not (both[0].isdigit() and both[1].isdigit() and int(both[1])):
        return None  # "max", -1, or no such file
    return int(both[0]) / int(both[1])
