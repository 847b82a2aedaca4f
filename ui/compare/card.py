"""A saved benchmark as one picture: an SVG in the page's colours, which compare.js turns into a PNG."""

from collections.abc import Sequence
from html import escape

from app.bench.compare.record import BenchmarkRecord, LaneRecord
from engine.request import PLAIN
from ui.chat.caption import mode_name
from ui.history.charts import times

WIDE, TALL = 1200, 675
_LEFT, _RIGHT = 56, 644  # the left edges of the columns
_COLUMN, _LABEL = 500, 150  # their width, and that of the names in it
_TOP = 280  # of the bars
_LINE = 22
_FONT = "font-family:ui-sans-serif,system-ui,sans-serif"

_SHORT = ("qa", "rag", "stem")

Row = tuple[str, float | None, str]  # name, speed-up, label


def card(record: BenchmarkRecord) -> str:
    """The whole picture. SVG."""
    best = record.best
    lanes = [_lane(one) for one in sorted(record.lanes, key=lambda one: -(one.all.speedup or 1.0))]
    parts = [_head(record), _headline(record)]
    parts.append(_bars(_LEFT, "All prompts", lanes))
    if best is not None:
        kinds = [(kind(n), f.speedup, times(f.speedup)) for n, f in best.categories.items()]
        parts.append(_bars(_RIGHT, f"{mode_name(best.drafter)} by kind of prompt", kinds))
    parts.append(_text(_LEFT, TALL - 32, 16, _conditions(record), "--ink-2"))
    return (
        f'<svg class="card-picture" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{escape(summary(record))}" viewBox="0 0 {WIDE} {TALL}" width="{WIDE}" '
        f'height="{TALL}" style="{_FONT}"><rect width="{WIDE}" height="{TALL}" '
        f'style="fill:var(--paper)"/>{"".join(parts)}</svg>'
    )


def summary(record: BenchmarkRecord) -> str:
    """The result in one sentence."""
    best = record.best
    if best is None or best.all.speedup is None:
        return f"{record.model}: nothing could be timed."
    if best.all.speedup <= 1:
        return f"{record.model}: no mode was faster than plain decoding."
    return (
        f"{record.model}: {mode_name(best.drafter)} was {best.all.speedup:.2f} times as fast as plain "
        f"decoding. {agreement(record)}"
    )


def agreement(record: BenchmarkRecord) -> str:
    """How many answers are identical to plain decoding, token by token."""
    drafted = [lane.all for lane in record.lanes if lane.drafter != PLAIN]
    same, all_of = sum(one.identical for one in drafted), sum(one.answers for one in drafted)
    if same == all_of:
        return f"All {all_of:,} drafted answers are identical to plain decoding, token by token."
    return (
        f"{same:,} of {all_of:,} drafted answers are identical to plain decoding, token by token."
    )


def kind(category: str) -> str:
    """The name of a category of prompts for people."""
    if category in _SHORT:
        return category.upper()
    return category.replace("_", " ").capitalize()


def _lane(lane: LaneRecord) -> Row:
    rate = f"{lane.all.rate:,.0f} tokens/s"
    plain = lane.drafter == PLAIN
    label = rate if plain else f"{times(lane.all.speedup)}  {rate}"
    return mode_name(lane.drafter), 1.0 if plain else lane.all.speedup, label


def _head(record: BenchmarkRecord) -> str:
    mark = "".join(
        f'<rect x="{_LEFT}" y="{44 + 9 * at}" width="{30 - 10 * at}" height="5" rx="2.5" '
        f'style="fill:var(--accent);opacity:{1 - 0.27 * at:.2f}"/>'
        for at in range(3)
    )
    name = _text(_LEFT + 44, 65, 22, "Slipstream", "--ink", "font-weight:650")
    date = _text(WIDE - _LEFT, 65, 16, record.date[:10], "--ink-2", "text-anchor:end")
    return mark + name + date


def _headline(record: BenchmarkRecord) -> str:
    best = record.best
    speedup = best.all.speedup if best is not None else None
    large = _text(_LEFT, 180, 88, times(speedup), "--ink", "font-weight:650;letter-spacing:-3px")
    if best is None or speedup is None:
        return large
    faster = f"as fast as plain decoding, with {mode_name(best.drafter).lower()}"
    x = _LEFT + 58 * len(times(speedup)) + 20
    return (
        f"{large}{_text(x, 138, 24, faster, '--ink', 'font-weight:500')}"
        f"{_text(x, 168, 16, _cut(record.model, 80), '--ink-2')}"
        f"{_text(x, 190, 16, _cut(record.machine, 90), '--ink-2')}"
    )


def _bars(x: int, heading: str, rows: Sequence[Row]) -> str:
    """One bar a row, and a line at the speed of plain decoding."""
    most = max([1.0, *(value or 0.0 for _, value, _ in rows)])
    room = _COLUMN - _LABEL - 140
    line = x + _LABEL + room / most
    drawn = "".join(
        _bar((x, _TOP + _LINE * at), row, room * (row[1] or 0.0) / most)
        for at, row in enumerate(rows)
    )
    bottom = _TOP + _LINE * len(rows) - 6
    return (
        f"{_text(x, _TOP - 32, 18, heading, '--ink', 'font-weight:600')}{drawn}"
        f'<line x1="{line:.1f}" x2="{line:.1f}" y1="{_TOP - 18}" y2="{bottom}" '
        'style="stroke:var(--ink-2);stroke-width:1.5;stroke-dasharray:3 4"/>'
    )


def _bar(at: tuple[int, int], row: Row, width: float) -> str:
    (x, y), (name, value, label) = at, row
    colour = "--accent" if value is not None and value > 1 else "--ink-2"
    shape = (
        f'<rect x="{x + _LABEL}" y="{y - 11}" width="{max(2.0, width):.1f}" height="10" rx="3" '
        f'style="fill:var({colour})"/>'
    )
    after = _text(round(x + _LABEL + width + 10), y, 14, label, "--ink-2")
    return _text(x, y, 14, _cut(name, 20), "--ink") + shape + after


def _conditions(record: BenchmarkRecord) -> str:
    skipped = f", {record.skipped} skipped as too long" if record.skipped else ""
    return (
        f"{agreement(record)} {record.questions} prompts{skipped}, up to {record.max_tokens} tokens each, "
        "greedy, warm-up discarded."
    )


def _text(x: int, y: int, size: int, text: str, colour: str, more: str = "") -> str:
    style = f"fill:var({colour});font-size:{size}px;{more}"
    return f'<text x="{x}" y="{y}" style="{style}">{escape(text)}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
