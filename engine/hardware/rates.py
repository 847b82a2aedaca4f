"""How fast this machine reads memory and disk, multiplies, and feeds its GPU: two seconds in all."""

import mmap
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from engine.hardware.profile import Rates

_WEIGHTS = (".safetensors", ".gguf")
_READ = 256 * 2**20  # bytes: several times what processors cache
_SCRATCH = 64 * 2**20  # bytes of a file to read, where no model lies yet
_BLOCK = 8 * 2**20  # bytes of one read from disk
_DISK_SECONDS = 0.4
_SIDE = {"cpu": 1024, "cuda": 4096}  # of the square matrices that are multiplied
_REPEATS = 3


def measure(folder: Path) -> Rates:
    """All rates; ``folder`` is where models lie, and can be written."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return Rates(
        memory=read_rate(),
        matrix=matrix_rate(torch.device("cpu"), torch.float32),
        disk=disk_rate(folder),
        gpus=tuple(_gpu_rates(torch.device("cuda", index)) for index in gpus),
    )


def read_rate(size: int = _READ) -> float:
    """Bytes/s that all cores together read from memory."""
    block = torch.ones(size // 4)
    return size / _best(block.sum)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations/s of a square matrix product, 2 for each multiply-add."""
    side = _SIDE[device.type]
    left = torch.ones(side, side, device=device, dtype=dtype)
    return 2 * side**3 / _best(lambda: left @ left, device)


def disk_rate(folder: Path) -> float | None:
    """Bytes/s of sequential reads that the page cache does not serve; None where none can be made."""
    known = (path for path in folder.rglob("*") if path.suffix in _WEIGHTS and path.is_file())
    largest = max(known, key=lambda path: path.stat().st_size, default=None)
    if largest is not None and largest.stat().st_size >= _SCRATCH:
        return _file_rate(largest)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".rate-") as scratch:
            scratch.write(os.urandom(2**20) * (_SCRATCH // 2**20))
            scratch.flush()
            os.fsync(scratch.fileno())
            return _file_rate(Path(scratch.name))
    except OSError:  # full, or not ours to write: the plan then goes without this rate
        return None


def _file_rate(file: Path) -> float | None:
    handle = _open_uncached(file)
    try:
        buffer = mmap.mmap(-1, _BLOCK)  # page-aligned, as direct reads ask for
        size, done = file.stat().st_size, 0
        started = time.perf_counter()
        while done + _BLOCK <= size and time.perf_counter() - started < _DISK_SECONDS:
            if os.preadv(handle, [buffer], done) != _BLOCK:
                break
            done += _BLOCK
        return done / (time.perf_counter() - started) if done else None
    finally:
        os.close(handle)


def _open_uncached(file: Path) -> int:
    """For direct reads; where the file system has none, its pages are dropped first."""
    try:
        return os.open(file, os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError):  # tmpfs and some network drives; not Linux
        handle = os.open(file, os.O_RDONLY)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return handle


def _gpu_rates(device: torch.device) -> tuple[float, float, float]:
    """(copy, matrix, upload) of one GPU."""
    block = torch.ones(_READ // 4, device=device)
    target = torch.empty_like(block)
    copied = 2 * _READ / _best(lambda: target.copy_(block), device)  # it reads and it writes
    host = torch.ones(_SCRATCH // 4).pin_memory()
    landing = torch.empty(host.shape, device=device)
    upload = _SCRATCH / _best(lambda: landing.copy_(host, non_blocking=True), device)
    return copied, matrix_rate(device, torch.bfloat16), upload


def _best(work: Callable[[], object], device: torch.device | None = None) -> float:
    """Seconds of the fastest of some calls; the first one is left out, it builds kernels."""
    times = []
    for _ in range(_REPEATS + 1):
        started = time.perf_counter()
        work()
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return min(times[1:])
