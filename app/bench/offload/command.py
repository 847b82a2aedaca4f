"""The command ``bench offload``: a model of more than 4 GB in 1 GB of memory, from this disk."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.bench.offload.checkpoint import write_inflated
from app.bench.offload.process import Found, Order, Task, run
from app.bench.offload.rows import FASTER, PLAIN, TREES, rows
from app.bench.options import OffloadOptions
from app.bench.prompt_files import load_prompts
from app.bench.report import ResultFile, describe_machine
from app.bench.rows import RowReport
from app.errors import RequestFailed
from app.models.catalog import resolve
from app.progress import show_progress
from app.request import Message
from app.text.chat_text import ChatText
from engine.request import ModelSpec

ROUNDS = 3
PROMPTS, TOKENS = 3, 48  # of trees
PLAIN_TOKENS = 3  # every token is a pass, and passes differ by the disk's pace alone


def bench_offload(options: OffloadOptions) -> int:
    """Build the model, measure it streamed and resident, print the rows; 0 only if all hold."""
    spec = resolve(options.settings, options.model)
    if spec.draft_folder is None:
        raise RequestFailed(f"{options.model} has no draft model; choose a model that has one")
    machine = describe_machine()
    report = RowReport(
        machine, ResultFile(options.json), {"inflate": options.inflate, "limit": options.limit}
    )
    report.head(
        f"{machine.cpu}, {machine.cores} cores, torch {machine.torch}, {machine.date}, float32",
        f"{options.model}, feed-forward parts {options.inflate} times as wide, the same function",
        f"{options.limit / 1e6:.0f} MB of memory for it, the rest read from disk in every pass",
    )
    with _folder(options) as folder:
        try:
            write_inflated(Path(spec.folder), options.inflate, folder, show_progress)
            found = _measured(options, spec, folder)
        finally:
            show_progress("")
    for one in rows(*found, options.limit):
        report.add([one], [f"    {name}: {value:.3f}" for name, value in one.figures])
    return report.close()


@contextmanager
def _folder(options: OffloadOptions) -> Iterator[Path]:
    """The folder of the large model: a named one stays, another is removed."""
    if options.folder is not None:
        yield options.folder
        return
    options.settings.home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="offload-", dir=options.settings.home) as folder:
        yield Path(folder)


def _measured(options: OffloadOptions, spec: ModelSpec, folder: Path) -> tuple[Found, Found]:
    text = ChatText.load(Path(spec.folder))
    asked = options.prompts or load_prompts(None, 1).problems
    prompts = tuple(text.encode_chat([Message("user", turns[0])]) for turns in asked[:PROMPTS])
    draft, stops = str(spec.draft_folder), text.stop_tokens
    streamed = Order(
        str(folder), draft, options.limit, stops, tuple(_tasks(prompts)), rounds=ROUNDS
    )
    whole = Task(PLAIN, 0.0, prompts, TOKENS)
    resident = Order(str(folder), draft, None, stops, (whole,), rounds=0)
    return run(streamed, show_progress), run(resident, show_progress)


def _tasks(prompts: Sequence[tuple[int, ...]]) -> Iterator[Task]:
    """Plain and trees take turns: the disk's pace drifts within minutes."""
    for prompt in prompts:
        for temperature in FASTER:
            yield Task(PLAIN, temperature, (prompt,), PLAIN_TOKENS)
            yield Task(TREES, temperature, (prompt,), TOKENS)
