"""Claims side by side, each in a process with cores of its own.

Passes over few rows gain little from a fifth core, and a third from a second one: two processes with
one each do 1.4 times as much. What is compared within a claim takes turns in one process, on the
same cores; two claims are never compared with each other.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import Queue
from threading import Thread

from app.bench.papers.harness import Asked, Harness, begin_worker
from app.bench.papers.row import Row
from app.placement.machine import cores

CLAIMS = "app.bench.papers"
CORES = 4  # of one claim, where there are so many for two of them
# Begin first, or one of them ends alone.
LONGEST = ("sequoia", "auto", "lossless", "early_exit", "goodput", "history", "specexec")
TOPOLOGY = Path("/sys/devices/system/cpu")


def seats() -> int:
    """Claims to show at once; 1 where there is one core, or a process cannot be given its own."""
    if not hasattr(os, "sched_setaffinity"):
        return 1
    return max(min(2, cores()), cores() // CORES)


def shown(name: str, instrument: Harness, package: str = CLAIMS) -> Row:
    """One claim, in this process."""
    started = time.perf_counter()
    show: Callable[[Harness], Row] = import_module(f"{package}.{name}").show
    return replace(show(instrument), seconds=round(time.perf_counter() - started, 1))


def each_shown(names: Sequence[str], instrument: Harness, package: str = CLAIMS) -> Iterator[Row]:
    """Every claim as soon as it is shown: one after the other, or as many at once as have seats.

    Raises what kept one from being shown; of several at once, when the others are shown.
    """
    count = min(seats(), len(names))
    if count < 2:
        yield from (shown(name, instrument, package) for name in names)
        return
    context = multiprocessing.get_context("spawn")
    with context.Manager() as queues:
        places: Queue[tuple[int, ...]] = queues.Queue()
        told: Queue[str] = queues.Queue()
        for place in divided(tuple(os.sched_getaffinity(0)), count):
            places.put(place)
        with (
            _telling(told, instrument.progress),
            ProcessPoolExecutor(count, context, _take_a_seat, (places,)) as pool,
        ):
            order = sorted(names, key=(*LONGEST, *names).index)
            there = partial(_shown_there, package, instrument.asked, told)
            futures = [pool.submit(there, name) for name in order]
            errors: list[BaseException] = []
            for future in as_completed(futures):
                if (error := future.exception()) is None:
                    yield future.result()
                else:
                    errors.append(error)
    if errors:  # what the others showed meanwhile is not lost
        raise errors[0]


def divided(
    available: Sequence[int], count: int, topology: Path = TOPOLOGY
) -> list[tuple[int, ...]]:
    """Equal shares of these cores; threads of one physical core stay together where it is known."""
    near = sorted(available, key=lambda core: (_physical(core, topology), core))
    each = len(near) // count
    return [tuple(near[at * each : (at + 1) * each]) for at in range(count)]


def _physical(core: int, topology: Path) -> tuple[int, ...]:
    """Package and physical core; nothing where the system does not tell."""
    folder = topology / f"cpu{core}" / "topology"
    try:
        return tuple(
            int((folder / name).read_text()) for name in ("physical_package_id", "core_id")
        )
    except (OSError, ValueError):
        return ()


def _take_a_seat(places: Queue[tuple[int, ...]]) -> None:
    place = places.get()
    os.sched_setaffinity(0, place)
    begin_worker(len(place))


def _shown_there(package: str, asked: Asked, told: Queue[str], name: str) -> Row:
    return shown(name, Harness(*asked, lambda text: told.put(f"{name}: {text}")), package)


@contextmanager
def _telling(told: Queue[str], progress: Callable[[str], None]) -> Iterator[None]:
    """What claims say of themselves goes to ``progress`` meanwhile."""

    def tell() -> None:
        while text := told.get():
            progress(text)

    teller = Thread(target=tell)
    teller.start()
    try:
        yield
    finally:
        told.put("")
        teller.join()
