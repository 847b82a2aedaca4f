"""One visit to a CUDA machine: ``python -m engine.hardware.gpu_report [--json OUT]``.

Prints what the device reaches of what it could: plain decoding against memory bandwidth, the cost
of wider passes with and without recorded graphs, and verification against the torch code. ``--smoke``
runs the same code small and on the processor, kernels in Triton's interpreter: it proves that the
report works and says nothing about speed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from engine.decoder.inflate import inflated
from engine.decoder.weights import load_weights
from engine.errors import NumericalError
from engine.kernels.philox import PhiloxRandom
from engine.kernels.verify import verify_all
from engine.models.own.cuda_target import BUCKETS, CudaTarget, on_device
from engine.models.own.pass_kernels import WRITTEN_OUT
from engine.models.own.target import TorchTarget
from engine.request import SamplingParams
from engine.speculation.tree import DraftTree, chain
from engine.speculation.verify import Verdict, verify

POCKET = Path(__file__).parents[1] / "bundled" / "pocket"
MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; ``target`` is what it should reach, None where it is only a fact."""

    name: str
    value: float | None
    unit: str
    target: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measured things are."""

    device: torch.device
    dtype: torch.dtype
    inflate: int  # pocket's feed-forward parts, this many times as wide
    copied: int  # bytes
    vocabularies: tuple[int, ...]
    nodes: int
    buckets: tuple[int, ...]
    repeats: int


def full() -> Sizes:
    """About a billion parameters in bfloat16; a few minutes."""
    return Sizes(
        torch.device("cuda"), torch.bfloat16, 120, 1 << 30, (32_768, 151_936), 64, BUCKETS, 20
    )


def smoke() -> Sizes:
    """Seconds on a processor."""
    return Sizes(torch.device("cpu"), torch.float32, 2, 1 << 20, (64,), 8, (1, 4), 2)


def seconds(work: Callable[[], object], sizes: Sizes) -> float:
    """Median seconds of ``work``, everything it started on the device included."""
    times = []
    for _ in range(sizes.repeats + 2):
        _wait(sizes.device)
        started = time.perf_counter()
        work()
        _wait(sizes.device)
        times.append(time.perf_counter() - started)
    return median(times[2:])  # the first ones build kernels


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copies(sizes: Sizes) -> tuple[float, float]:
    """Bytes per second: read plus written on the device, and from pinned memory to the device."""
    there = torch.empty(sizes.copied, dtype=torch.uint8, device=sizes.device)
    other = torch.empty_like(there)
    pinned = sizes.device.type == "cuda"
    here = torch.zeros(sizes.copied, dtype=torch.uint8, pin_memory=pinned)
    inside = seconds(lambda: other.copy_(there), sizes)
    across = seconds(lambda: there.copy_(here, non_blocking=True), sizes)
    return 2 * sizes.copied / inside, sizes.copied / across


def decoding(sizes: Sizes, bandwidth: float) -> Iterator[Row]:
    """Plain tokens per second and the cost of wider passes."""
    weights = inflated(load_weights(POCKET, sizes.dtype, sizes.device), sizes.inflate)
    size = weights.parameters * weights.embedding.element_size()
    recorded: TorchTarget = on_device(weights)
    if sizes.device.type == "cpu":
        recorded = CudaTarget(weights, WRITTEN_OUT, graphs=False)
    pace = 1 / seconds(lambda: _pass(recorded, 1), sizes)
    yield Row("model", weights.parameters / 1e9, "billion parameters", note="inflated pocket")
    yield Row("plain decoding", pace, "tokens/s", note=f"{size / 2**30:.2f} GiB a token")
    yield Row("plain of bytes / bandwidth", pace * size / bandwidth, "share", 0.8)
    eager = TorchTarget(weights)
    for rows in sizes.buckets:
        static, usual = (
            MICRO * seconds(partial(_pass, target, rows), sizes) for target in (recorded, eager)
        )
        yield Row(f"pass of {rows} rows, static", static, "us", note="graphs on a CUDA device")
        yield Row(f"pass of {rows} rows, eager", usual, "us")


def _pass(target: TorchTarget, rows: int) -> None:
    target.score([0], [chain([1] * rows)])
    target.crop(0, 0)


def verification(sizes: Sizes) -> Iterator[Row]:
    """Kernels against the torch code, on the same trees."""
    for vocab in sizes.vocabularies:
        random = torch.Generator().manual_seed(0)
        logits = torch.randn(sizes.nodes, vocab, generator=random).to(sizes.device)
        law = torch.softmax(torch.randn(vocab, generator=random), -1).to(sizes.device)
        tokens = tuple(range(sizes.nodes))
        parents = (-1, *((node - 1) // 2 for node in range(1, sizes.nodes)))
        chosen = DraftTree(tokens, parents)
        drawn = DraftTree(tokens, parents, dict.fromkeys(range(sizes.nodes // 2), law))
        laws = (SamplingParams(), SamplingParams(1.0), SamplingParams(1.0))
        kinds = zip(
            ("greedy", "lookup", "without replacement"), (chosen, chosen, drawn), laws, strict=True
        )
        for name, tree, sampling in kinds:
            fast = partial(_judge_fast, tree, logits, sampling)
            slow = partial(_judge_plain, tree, logits, sampling)
            same = fast() == slow()
            fast_us, slow_us = (MICRO * seconds(work, sizes) for work in (fast, slow))
            what = f"verify {name}, {sizes.nodes} nodes, {vocab} tokens"
            note = "same verdict" if same else "the verdicts differ"
            yield Row(what, fast_us, "us", 60.0, f"torch {slow_us:.0f} us; {note}")


def _judge_fast(tree: DraftTree, logits: Tensor, sampling: SamplingParams) -> Verdict:
    [found] = verify_all([tree], [logits], [sampling], [PhiloxRandom(1)])
    if isinstance(found, NumericalError):
        raise found
    return found


def _judge_plain(tree: DraftTree, logits: Tensor, sampling: SamplingParams) -> Verdict:
    return verify(tree, logits, sampling, PhiloxRandom(1))


def report(sizes: Sizes) -> list[Row]:
    """All measurements, in the order of the table."""
    inside, across = copies(sizes)
    rows = [
        Row("device memory", inside / 1e9, "GB/s"),
        Row("host to device, pinned", across / 1e9, "GB/s"),
    ]
    return [*rows, *decoding(sizes, inside), *verification(sizes)]


def table(rows: Sequence[Row]) -> str:
    """The rows for people."""
    lines = []
    for row in rows:
        value = "-" if row.value is None else f"{row.value:.4g}"
        target = "" if row.target is None else f"target {row.target:g}"
        lines.append(f"{row.name:48} {value:>10} {row.unit:18} {target:12} {row.note}".rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0 with a table; 2 where there is nothing to measure on."""
    parser = argparse.ArgumentParser(prog="python -m engine.hardware.gpu_report")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the rows as JSON")
    parser.add_argument(
        "--smoke", action="store_true", help="small, on the processor: is it whole?"
    )
    options = parser.parse_args(arguments)
    if not options.smoke and not torch.cuda.is_available():
        print(
            "no CUDA device: torch finds none; run this where one is, or try --smoke",
            file=sys.stderr,
        )
        return 2
    started = time.perf_counter()
    rows = report(smoke() if options.smoke else full())
    rows.append(Row("this report took", time.perf_counter() - started, "s"))
    print(table(rows))
    if options.json is not None:
        device = "processor" if options.smoke else torch.cuda.get_device_name()
        document = {"device": device, "smoke": options.smoke, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
