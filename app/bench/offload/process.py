"""One measuring process, so that its peak of memory is its own."""

import mmap
import multiprocessing
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from app.bench.lanes import Lane
from app.bench.measure import Prompt, Prompts, Sample, finished, measure
from app.bench.options import Conditions
from app.bench.runners import EngineRunner, base_request
from app.errors import AppError, RequestFailed
from app.sandbox import end_with_parent
from engine.build import assemble, load
from engine.engine import Engine
from engine.errors import EngineError
from engine.interfaces.target import Target
from engine.models.offload.direct_files import open_weights, pages, read_into
from engine.models.offload.disk import LARGEST_BUFFER, Disk
from engine.request import ModelSpec, SamplingParams
from engine.speculation.tree import single

DISK_BYTES = 2_000_000_000  # of one direct measurement
PASSES = 2  # of one measurement of streaming
SEED = 6


@dataclass(frozen=True, slots=True)
class Task:
    """One drafter at one temperature."""

    drafter: str
    temperature: float
    prompts: tuple[tuple[int, ...], ...]  # token ids
    tokens: int  # of an answer, at most

    @property
    def name(self) -> str:
        """Of its lane."""
        return lane_name(self.drafter, self.temperature)


@dataclass(frozen=True, slots=True)
class Order:
    """A model, the memory it may take, and what to decode with it."""

    folder: str
    draft_folder: str
    resident: int | None  # bytes; None: all of it
    stop_tokens: frozenset[int]
    tasks: tuple[Task, ...]
    rounds: int  # of comparing the disk's own rate with streaming's; 0: none


@dataclass(frozen=True, slots=True)
class Found:
    """What one process measured; bytes and seconds."""

    samples: tuple[Sample, ...]
    disk: tuple[float, ...] = ()  # bytes per second of sequential direct reads, by round
    ordinary: tuple[float, ...] = ()  # the same into memory of ordinary pages
    streaming: tuple[float, ...] = ()  # bytes per second of passes
    streamed: int = 0  # bytes of every pass
    held: int = 0  # bytes of layers that stayed
    widest: int = 0  # rows
    knots: tuple[tuple[int, float], ...] = ()  # rows -> seconds of a pass
    before: int = 0  # peak memory of the process with its libraries, before the model
    peak: int = 0  # at its end

    def of(self, drafter: str, temperature: float) -> list[Sample]:
        """All answers of this drafter at this temperature, in the order of the prompts."""
        name = lane_name(drafter, temperature)
        return [sample for sample in self.samples if sample.lane == name]


def lane_name(drafter: str, temperature: float) -> str:
    """Of a task's lane."""
    return f"{drafter}, temperature {temperature:g}"


def found_by(order: Order, progress: Callable[[str], None]) -> Found:
    """Measure in a process of its own; raises RequestFailed with the reason if it breaks."""
    where = "streamed" if order.resident is not None else "resident"
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, order), daemon=True)
    process.start()
    sender.close()  # or the end of the process would not be seen
    found: Found | Exception | None = None
    try:
        with suppress(EOFError):
            while found is None:
                message = receiver.recv()
                if isinstance(message, str):
                    progress(f"{where}: {message}")
                else:
                    found = message
        process.join()
    finally:
        process.kill()
    if isinstance(found, Found):
        return found
    why = found or f"exit code {process.exitcode}"
    raise RequestFailed(f"the {where} model could not be measured: {why}")


def _child(sender: Connection, order: Order) -> None:
    end_with_parent()
    try:
        sender.send(measured(order, sender.send))
    except (AppError, EngineError, OSError) as error:
        sender.send(RequestFailed(str(error)))


def measured(order: Order, report: Callable[[str], None]) -> Found:
    """Everything that the order asks for, with one model; run it in a process of its own."""
    before = peak_memory()
    report("loading, and measuring passes of several widths")
    spec = ModelSpec(
        name="large",
        folder=order.folder,
        draft_folder=order.draft_folder,
        resident=order.resident,
        slots=1,
    )
    parts, no_draft = load(spec)
    disk: list[float] = []
    ordinary: list[float] = []
    streaming: list[float] = []
    files = sorted(Path(order.folder).glob("*.safetensors"))
    source = parts.target.source
    for number in range(order.rounds):
        if not isinstance(source, Disk):  # all of it stays in memory
            break
        report(f"the disk's own rate against streaming's, {number + 1} of {order.rounds}")
        disk.append(direct_rate(files, pages(LARGEST_BUFFER)))
        ordinary.append(direct_rate(files, mmap.mmap(-1, LARGEST_BUFFER)))
        streaming.append(_pass_rate(parts.target, source))
    engine = assemble(spec, parts, no_draft)
    knots = tuple(sorted(parts.cost.knots.items()))
    samples: list[Sample] = []
    for number, task in enumerate(order.tasks, 1):
        report(f"{number} of {len(order.tasks)}: {task.name}")
        samples += _samples(engine, task, order.stop_tokens)
    return Found(
        samples=tuple(samples),
        disk=tuple(disk),
        ordinary=tuple(ordinary),
        streaming=tuple(streaming),
        streamed=source.streamed if source else 0,
        held=source.resident if source else 0,
        widest=source.widest if source else 0,
        knots=knots,
        before=before,
        peak=peak_memory(),
    )


def peak_memory() -> int:
    """Bytes of this process that were in memory at most, libraries and files it maps included."""
    import resource

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:  # another system: there ru_maxrss is in bytes
        return kilobytes
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def direct_rate(files: list[Path], block: mmap.mmap) -> float:
    """Bytes per second of one reader that takes whole blocks in order, as ``dd iflag=direct`` does.

    A disk may be faster than that shows: memory in ordinary pages takes the system as long to
    prepare for a direct read as the read itself.
    """
    done, seconds = 0, 0.0
    for file in files:
        weights = open_weights(file)
        started = time.perf_counter()
        for start in range(0, weights.size - len(block), len(block)):
            done += read_into(weights.descriptor, memoryview(block), start)
            weights.drop_cached(start, len(block))
            if done >= DISK_BYTES:
                break
        seconds += time.perf_counter() - started
        weights.close()
        if done >= DISK_BYTES:
            break
    return done / seconds if seconds else 0.0


def _pass_rate(target: Target, source: Disk) -> float:
    """Bytes per second of passes; what the readers had fetched before they began does not count."""
    started = time.perf_counter()
    for _ in range(PASSES):
        target.score([0], [single(0)])
        target.commit(0, [])
    seconds = time.perf_counter() - started
    return (PASSES * source.streamed - source.ahead) / seconds


def _samples(engine: Engine, task: Task, stop_tokens: frozenset[int]) -> tuple[Sample, ...]:
    sampling = SamplingParams(task.temperature, seed=SEED if task.temperature else None)
    conditions = Conditions(sampling, task.tokens, repeats=1, warm_up=False)
    runner = EngineRunner(engine, base_request(conditions, stop_tokens), name="offload")
    prompts = Prompts([[Prompt(n, ids=ids)] for n, ids in enumerate(task.prompts, 1)])
    lane = Lane(task.name, task.drafter)
    return finished(measure([lane], prompts, conditions, {lane.name: runner})).samples
