"""One measuring process, so that its peak of memory is its own: order in, progress and answer out."""

import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.bench.offload.plan import Found, Lane, Order, Task
from app.errors import RequestFailed
from engine.build import assemble, load
from engine.engine import Engine
from engine.interfaces.target import Target
from engine.models.offload.direct_files import open_weights, pages, read_into
from engine.models.offload.disk import LARGEST_BUFFER, Disk
from engine.request import Done, GenerationRequest, ModelSpec, SamplingParams, Tokens
from engine.speculation.tree import single

DISK_BYTES = 2_000_000_000  # of one direct measurement
PASSES = 2  # of one measurement of streaming
SEED = 6


def measured(order: Order, tell: Callable[[str], None]) -> Found:
    """Everything that is asked for, in one model."""
    before = peak_memory()
    tell("loading, and measuring passes of several widths")
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
        tell(f"the disk's own rate against streaming's, {number + 1} of {order.rounds}")
        disk.append(direct_rate(files, pages(LARGEST_BUFFER)))
        ordinary.append(direct_rate(files, mmap.mmap(-1, LARGEST_BUFFER)))
        streaming.append(_pass_rate(parts.target, source))
    engine = assemble(spec, parts, no_draft)
    knots = tuple(sorted(parts.cost.knots.items()))
    lanes = []
    for number, task in enumerate(order.tasks, 1):
        tell(f"{number} of {len(order.tasks)}: {task.drafter}, temperature {task.temperature:g}")
        lanes.append(_lane(engine, task, frozenset(order.stop_tokens)))
    return Found(
        lanes=tuple(lanes),
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


def _lane(engine: Engine, task: Task, stop_tokens: frozenset[int]) -> Lane:
    answers, passes, drafted, seconds = [], 0, 0, 0.0
    for prompt in task.prompts:
        sampling = SamplingParams(task.temperature, seed=SEED if task.temperature else None)
        request = GenerationRequest(
            prompt, task.tokens, sampling, stop_tokens=stop_tokens, drafter=task.drafter
        )
        ids, done = _answer(engine, request)
        answers.append(ids)
        passes, drafted = passes + done.stats.passes, drafted + done.stats.drafted
        seconds += done.stats.decode_seconds
    return Lane(task.drafter, task.temperature, tuple(answers), passes, drafted, seconds)


def _answer(engine: Engine, request: GenerationRequest) -> tuple[tuple[int, ...], Done]:
    engine.submit(request)
    ids: list[int] = []
    while True:
        for _, event in engine.step():
            if isinstance(event, Tokens):
                ids += event.ids
            elif event.error is not None:
                raise RequestFailed(event.error)
            else:
                return tuple(ids), event


def order_of(content: dict[str, Any]) -> Order:
    """An order that came as JSON."""
    tasks = tuple(
        Task(t["drafter"], t["temperature"], tuple(tuple(p) for p in t["prompts"]), t["tokens"])
        for t in content["tasks"]
    )
    return Order(**{**content, "tasks": tasks, "stop_tokens": tuple(content["stop_tokens"])})


def main() -> int:
    """Order on standard input; lines of JSON on standard output, the answer last."""

    def tell(text: str) -> None:
        sys.stdout.write(json.dumps({"progress": text}) + "\n")
        sys.stdout.flush()

    found = measured(order_of(json.loads(sys.stdin.read())), tell)
    sys.stdout.write(json.dumps({"found": asdict(found)}) + "\n")
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
