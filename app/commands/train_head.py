"""The command ``train-head``: an acceptance head for one target and its draft model."""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.bench.prompt_files import Turns, read_prompts
from app.commands.arguments import add_prompts, number, set_command
from app.models.catalog import resolve
from app.request import Message
from app.settings import Settings
from app.terminal import notify, write_lines
from app.text.chat_text import ChatText
from engine.training.acceptance_head import Figures, Progress, learn
from engine.training.draft_labels import Recipe, load_pair

EVERY_SECONDS = 10.0  # a line of progress


@dataclass(frozen=True, slots=True)
class TrainHeadOptions:
    """Which pair of models an acceptance head is trained for, on which prompts, how long."""

    settings: Settings
    target: str  # a name of models.yaml, or a folder
    draft: str  # likewise
    prompts: tuple[Turns, ...]
    out: Path  # folder that the head is written to
    minutes: float


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    option = parser.add_argument
    option("--target", metavar="MODEL", required=True, help="the model that checks drafts")
    option("--draft", metavar="MODEL", required=True, help="the model that drafts")
    add_prompts(parser)
    option("--out", metavar="FOLDER", type=Path, required=True, help="folder to write the head to")
    option(
        "--minutes",
        type=number(0, 10_000),
        default=20.0,
        help="longest training (default %(default)s)",
    )
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> TrainHeadOptions:
    prompts = tuple(read_prompts(given.prompts, given.limit))
    return TrainHeadOptions(settings, given.target, given.draft, prompts, given.out, given.minutes)


def run(options: TrainHeadOptions) -> int:
    """Write the head; progress on standard error, one line of result on standard output."""
    spec = resolve(options.settings, options.target, options.draft)
    text = ChatText.load(Path(spec.folder))
    pair = load_pair(spec, text.stop_tokens)
    prompts = _encoded(text, options.prompts)
    recipe = Recipe(minutes=options.minutes)
    figures = _followed(learn(pair, prompts, recipe, options.out))
    write_lines([_conclusion(options, figures)])
    return 0


def _encoded(text: ChatText, prompts: Sequence[Turns]) -> list[tuple[int, ...]]:
    """The first turn of each: later ones answer answers that the file does not hold."""
    return [text.encode_chat([Message("user", turns[0])]) for turns in prompts]


def _followed(run: Iterator[Progress | Figures]) -> Figures:
    """Print progress every ten seconds and at the end of each stage; returns the figures."""
    shown = -EVERY_SECONDS
    for now in run:
        if isinstance(now, Figures):
            return now
        if time.monotonic() - shown >= EVERY_SECONDS or now.count == now.total:
            notify(_line(now))
            shown = time.monotonic()
    raise AssertionError("a run ends with figures")


def _line(now: Progress) -> str:
    loss = "" if now.loss is None else f", loss {now.loss:.4f}"
    left = round(now.seconds_left)
    return f"{now.stage}: {now.count} of {now.total}{loss}, {left // 60}:{left % 60:02} left"


def _conclusion(options: TrainHeadOptions, figures: Figures) -> str:
    return (
        f"acceptance head written to {options.out}: AUC {figures.auc:.3f} for rejections among "
        f"{figures.tokens} drafted tokens of unseen prompts; to use it, set acceptance_head to this "
        f"folder in the entry of {options.target} in models.yaml, and ask for drafter chain with "
        "length acceptance_head"
    )
