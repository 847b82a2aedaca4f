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
from engine.decode.tree import single
from engine.engine import Engine
from engine.offload.files import open_weights, read_into
from engine.offload.room import BUFFERS, LARGEST_BUFFER
from engine.protocols import LayerSource, Streamed, Target
from engine.request import Done, GenerationRequest, ModelSpec, SamplingParams, Tokens

DISK_BYTES = 2_000_000_000  # of one direct measurement
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
    disk, streaming = [], []
    source = parts.target.source if isinstance(parts.target, Streamed) else None
    for number in range(order.rounds if source else 0):
        assert source is not None
        tell(f"the disk's own rate against streaming's, {number + 1} of {order.rounds}")
        disk.append(direct_rate(sorted(Path(order.folder).glob("*.safetensors"))))
        streaming.append(_pass_rate(parts.target, source))
    engine = assemble(spec, parts, no_draft)
    knots = tuple(sorted(parts.cost.knots.items()))
    lanes = tuple(_lane(engine, task, frozenset(order.stop_tokens), tell) for task in order.tasks)
    return Found(
        lanes=lanes,
        disk=tuple(disk),
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


def direct_rate(files: list[Path]) -> float:
    """Bytes per second of one reader that takes large blocks in order, as ``dd iflag=direct`` does."""
    block = mmap.mmap(-1, LARGEST_BUFFER)
    done, seconds = 0, 0.0
    for file in files:
        weights = open_weights(file)
        started = time.perf_counter()
        for start in range(0, weights.size - LARGEST_BUFFER, LARGEST_BUFFER):
            done += read_into(weights.descriptor, memoryview(block), start)
            weights.drop_cached(start, LARGEST_BUFFER)
            if done >= DISK_BYTES:
                break
        seconds += time.perf_counter() - started
        weights.close()
        if done >= DISK_BYTES:
            break
    return done / seconds if seconds else 0.0


def _pass_rate(target: Target, source: LayerSource) -> float:
    """Bytes per second of a pass; what the readers had fetched before it began does not count."""
    started = time.perf_counter()
    target.score([0], [single(0)])
    seconds = time.perf_counter() - started
    target.commit(0, [])
    return (source.streamed - BUFFERS * LARGEST_BUFFER) / seconds


def _lane(
    engine: Engine, task: Task, stop_tokens: frozenset[int], tell: Callable[[str], None]
) -> Lane:
    answers, passes, drafted, seconds = [], 0, 0, 0.0
    for number, prompt in enumerate(task.prompts, 1):
        tell(
            f"temperature {task.temperature:g}, {task.drafter}: prompt {number} of {len(task.prompts)}"
        )
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
