"""The command ``history``: what was measured of the drafters, as a table, or forgotten."""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from app.commands.arguments import set_command, words
from app.history.evidence import LIFE_DAYS, WINDOW
from app.history.measurements import Measurements
from app.history.records import Forgotten, Origin, Remembered
from app.history.store import History
from app.settings import Settings, expanded
from app.terminal import notify, write_lines

DEPTHS = 4  # columns of acceptance; deeper ones are kept, but say little to people
NAMES = ("drafter", "task", "temperature")
FIGURES = ("replies", "tokens", "pace", *(f"at {depth}" for depth in range(1, DEPTHS + 1)))


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """Show the measurements of drafters, or forget them."""

    settings: Settings
    reset: bool
    model: str | None  # None is every model


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--reset", action="store_true", help="forget the measurements")
    parser.add_argument(
        "--model", dest="only", metavar="MODEL", type=words, help="of this model (default: all)"
    )
    set_command(parser, lambda given, s: HistoryOptions(s, given.reset, given.only), run)


def run(options: HistoryOptions) -> int:
    """Print what is remembered, or forget it; returns the exit code."""
    history = History.open(options.settings.database)
    try:
        notify(history.notice)
        model = None if options.model is None else _stored_name(options.model)
        write_lines((_forget if options.reset else _table)(history.measurements, model))
    finally:
        history.close()
    return 0


def _forget(measurements: Measurements, model: str | None) -> Iterator[str]:
    gone = measurements.forget(model)
    if gone == Forgotten(0, 0):
        yield f"There was nothing to forget{_of(model)}. Conversations are as they were."
        return
    yield (
        f"Forgot {_counted(gone.replies, 'measured reply', 'measured replies')}{_of(model)}, with "
        f"{_counted(gone.runs, 'drafter run', 'drafter runs')}. Conversations are as they were."
    )


def _table(measurements: Measurements, model: str | None) -> Iterator[str]:
    """Sections by model and machine, a line for each drafter, task and temperature."""
    rows = measurements.remembered(model)
    if not rows:
        yield _nothing(sorted({row.origin.model for row in measurements.remembered()}), model)
        return
    for heading, section in groupby(rows, key=lambda row: _heading(row.origin)):
        yield heading
        yield _line(NAMES, FIGURES)
        for row in section:
            yield _row(row)
        yield ""
    yield "At 1, 2, ...: share accepted of the drafted tokens looked at, by depth of the draft."
    yield "Pace: tokens per second as a multiple of plain decoding's, prompts left out."
    yield (
        f"New answers are guided by the newest {WINDOW} replies of a kind, none older than "
        f"{LIFE_DAYS:.0f} days. `slipstream history --reset` forgets them all."
    )


def _nothing(known: Sequence[str], model: str | None) -> str:
    if not known:
        return "Nothing has been measured yet: every answer adds to it."
    return (
        f"Nothing has been measured{_of(model)} yet; there are measurements of {', '.join(known)}."
    )


def _heading(origin: Origin) -> str:
    drafting = f" with {origin.draft}" if origin.draft else ""
    return f"{origin.model}{drafting} on {origin.machine}"


def _row(row: Remembered) -> str:
    origin = row.origin
    pace = "-" if row.pace is None else f"{row.pace:.2f}x"
    shares = [f"{d.accepted / d.evaluated:.0%}" if d.evaluated else "-" for d in row.depths]
    names = (origin.drafter, origin.task, origin.temperature)
    figures = (str(row.replies), str(row.emitted), pace, *(shares + ["-"] * DEPTHS)[:DEPTHS])
    return _line(names, figures)


def _line(names: Sequence[str], figures: Sequence[str]) -> str:
    left = "".join(f"{name:<{width}}" for name, width in zip(names, (14, 7, 14), strict=True))
    return left + "".join(f"{figure:>9}" for figure in figures)


def _stored_name(model: str) -> str:
    """A model that was loaded from a folder is stored under the folder's name."""
    return expanded(Path(model)).absolute().name if os.sep in model else model


def _of(model: str | None) -> str:
    return f" of {model}" if model else ""


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
