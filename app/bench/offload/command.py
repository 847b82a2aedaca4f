"""The command ``bench offload``: a model of more than 4 GB in 1 GB of memory, from this disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from app.bench.offload.checkpoint import model_folder, write_inflated
from app.bench.offload.process import Found, Order, Task, found_by
from app.bench.offload.rows import FASTER, PLAIN, TREES, rows
from app.bench.options import FixedBench
from app.bench.prompt_files import load_prompts, read_prompts
from app.bench.rows import RowReport
from app.errors import RequestFailed
from app.models.catalog import resolve
from app.request import Message
from app.terminal import show_progress
from app.text.chat_text import ChatText
from engine.request import ModelSpec

INFLATE = 160  # 4.3 GB of the bundled model
LIMIT = 1_000_000_000  # bytes
ROUNDS = 3
PROMPTS, TOKENS = 3, 48  # of trees
PLAIN_TOKENS = 3  # every token is a pass, and passes differ by the disk's pace alone


def run(options: FixedBench) -> int:
    """Build the model, measure it streamed and resident, print the rows; 0 only if all hold."""
    spec = resolve(options.settings, options.model)
    if spec.draft_folder is None:
        raise RequestFailed(f"{options.model} has no draft model; choose a model that has one")
    report = RowReport(options.json, {"inflate": INFLATE, "limit": LIMIT})
    machine = report.machine
    report.head(
        f"{machine.cpu}, {machine.cores} cores, torch {machine.torch}, {machine.date}, float32",
        f"{options.model}, feed-forward parts {INFLATE} times as wide, the same function",
        f"{LIMIT / 1e6:.0f} MB of memory for it, the rest read from disk in every pass",
    )
    with model_folder(options.folder, "offload-", options.settings.home) as folder:
        try:
            write_inflated(Path(spec.folder), INFLATE, folder, show_progress)
            found = _measured(options, spec, folder)
        finally:
            show_progress("")
    for one in rows(*found, LIMIT):
        report.add([one], [f"    {name}: {value:.3f}" for name, value in one.figures])
    return report.close()


def _measured(options: FixedBench, spec: ModelSpec, folder: Path) -> tuple[Found, Found]:
    text = ChatText.load(Path(spec.folder))
    own = options.prompts
    asked = load_prompts(None, 1).problems if own is None else read_prompts(own, options.limit)
    prompts = tuple(text.encode_chat([Message("user", turns[0])]) for turns in asked[:PROMPTS])
    draft, stops = str(spec.draft_folder), text.stop_tokens
    streamed = Order(str(folder), draft, LIMIT, stops, tuple(_tasks(prompts)), rounds=ROUNDS)
    whole = Task(PLAIN, 0.0, prompts, TOKENS)
    resident = Order(str(folder), draft, None, stops, (whole,), rounds=0)
    return found_by(streamed, show_progress), found_by(resident, show_progress)


def _tasks(prompts: Sequence[tuple[int, ...]]) -> Iterator[Task]:
    """Plain and trees take turns: the disk's pace drifts within minutes."""
    for prompt in prompts:
        for temperature in FASTER:
            yield Task(PLAIN, temperature, (prompt,), PLAIN_TOKENS)
            yield Task(TREES, temperature, (prompt,), TOKENS)
