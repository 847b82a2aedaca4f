"""The command ``bench seeds``: several claims at once, each in a process with cores of its own.

Passes over few rows gain little from a fifth core, and a third from a second one: two processes with
one each do 1.4 times as much. What is compared within a claim takes turns in one process, on the
same cores; two claims are never compared with each other.
"""

import logging
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

import torch

from app.bench.options import CLAIMS, FixedBench
from app.bench.papers.harness import Harness
from app.bench.prompt_files import PromptSet, load_prompts
from app.bench.rows import Row, RowReport
from app.errors import AppError
from app.sandbox import end_with_parent
from app.settings import Settings
from app.terminal import show_progress
from engine.errors import EngineError
from engine.platform.cores import usable_threads

log = logging.getLogger(__name__)

ROOM = "app.bench.papers"
EACH = 10  # open questions of every category
CORES = 4  # of one claim, where two of them can have that many
# Begin first, or one of them ends alone.
LONGEST = ("sequoia", "auto", "lossless", "early_exit", "goodput", "history", "specexec")
TOPOLOGY = Path("/sys/devices/system/cpu")


def run(options: FixedBench) -> int:
    """Print each row as it is shown; 0 only if every row holds."""
    prompts = load_prompts(options.prompts, EACH)
    instrument = Harness(options.settings, options.model, prompts, show_progress)
    report = RowReport(options.json)
    machine = report.machine
    report.head(
        f"{machine.cpu}, {machine.cores} cores, torch {machine.torch}, {machine.date}, float32",
        "tokens per second are measured on the inflated model: the same function, the same tokens, "
        "feed-forward parts several times as wide",
    )
    for row in each_shown(options.only or CLAIMS, instrument):
        report.add([row])
    return report.close()


def seats() -> int:
    """Claims to show at once; 1 where there is one core, or a process cannot be given its own."""
    if not hasattr(os, "sched_setaffinity"):
        return 1
    return max(min(2, usable_threads()), usable_threads() // CORES)


def shown(name: str, instrument: Harness, package: str = ROOM) -> Row:
    """One claim, in this process; of one that cannot be shown the row gives the reason."""
    started = time.perf_counter()
    show: Callable[[Harness], Row] = import_module(f"{package}.{name}").show
    try:
        found = show(instrument)
    except Exception as error:  # noqa: BLE001 - what other claims found must not be lost
        found = _not_shown(name, error)
    return replace(found, seconds=round(time.perf_counter() - started, 1))


def each_shown(names: Sequence[str], instrument: Harness, package: str = ROOM) -> Iterator[Row]:
    """Every claim as soon as it is shown: one after the other, or several at once."""
    count = min(seats(), len(names))
    if count < 2:
        yield from (shown(name, instrument, package) for name in names)
        return
    context = multiprocessing.get_context("spawn")
    with context.Manager() as queues:
        places: Queue[tuple[int, ...]] = queues.Queue()
        lines: Queue[str] = queues.Queue()
        for place in divided(tuple(os.sched_getaffinity(0)), count):
            places.put(place)
        with (
            _forwarded(lines, instrument.progress),
            ProcessPoolExecutor(count, context, _take_a_seat, (places,)) as pool,
        ):
            order = sorted(names, key=(*LONGEST, *names).index)
            asked = instrument.settings, instrument.model, instrument.prompts
            there = partial(_shown_there, package, asked, lines)
            futures = {pool.submit(there, name): name for name in order}
            for future in as_completed(futures):
                error = future.exception()  # its process died
                yield future.result() if error is None else _not_shown(futures[future], error)


def _not_shown(name: str, error: BaseException) -> Row:
    """The row of a claim that broke; an unexpected error is logged with its traceback."""
    if isinstance(error, AppError | EngineError):
        return Row(name, holds=False, says=f"cannot be shown: {error}")
    log.error("the claim %s broke", name, exc_info=error)
    return Row(name, holds=False, says=f"cannot be shown: {type(error).__name__}: {error}")


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
    """Use these cores alone, and end with the bench."""
    place = places.get()
    os.sched_setaffinity(0, place)
    torch.set_num_threads(len(place))
    end_with_parent()


def _shown_there(
    package: str, asked: tuple[Settings, str, PromptSet], lines: Queue[str], name: str
) -> Row:
    return shown(name, Harness(*asked, lambda text: lines.put(f"{name}: {text}")), package)


@contextmanager
def _forwarded(lines: Queue[str], progress: Callable[[str], None]) -> Iterator[None]:
    """Progress of the other processes goes to ``progress`` meanwhile."""

    def forward() -> None:
        while text := lines.get():
            progress(text)

    thread = Thread(target=forward)
    thread.start()
    try:
        yield
    finally:
        lines.put("")
        thread.join()
