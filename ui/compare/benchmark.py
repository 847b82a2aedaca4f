"""The benchmark of this machine as HTML: its form, its progress, and the saved ones."""

from collections.abc import Sequence
from html import escape

from app.bench.compare.benchmark import Benchmark
from app.bench.compare.record import BenchmarkRecord, Figures
from app.bench.compare.saved import SavedBenchmark, as_json
from engine.request import PLAIN
from ui.chat.caption import mode_name
from ui.compare.card import agreement, card, kind, summary
from ui.history.charts import percent, times
from ui.widgets import bar, button, confirmed, options

_SIZES = {
    "quick": "Quick: auto against plain",
    "modes": "Every mode",
    "full": "Every mode, long answers",
}
INTRODUCTION = f"""
<div class="head"><h2 id="bench-title">Your machine</h2></div>
<p class="note">Prompts of the Spec-Bench categories, word problems and text chores, each answered plainly
and in other modes. The first prompt runs once before, not counted; the order of the modes changes.
The result is kept on this computer, without prompts and answers.</p>
<form id="bench" class="row" aria-labelledby="bench-title"><label><span>Size</span>
<select name="size">{options(_SIZES, shown=_SIZES.__getitem__)}</select></label></form>
"""


def progress(benchmark: Benchmark | None, *, waiting: bool) -> str:
    """How much is done, and the time left. HTML."""
    if benchmark is None:
        return ""
    done, total = benchmark.done, benchmark.total
    now = "waiting for an answer in the chat" if waiting else benchmark.now
    left = benchmark.seconds_left
    time = "" if left is None else f", about {minutes(left)} left"
    name, _, drafter = now.rpartition(", ")
    what = f"{name}, {mode_name(drafter).lower()}" if name and not waiting else now
    label = f"{done} of {total} answers"
    return (
        f"{bar([('fill', done / total, label)], label)}"
        f'<p class="note">{label}{time}<span class="now"> \u00b7 {escape(what)}</span></p>'
    )


def minutes(seconds: float) -> str:
    """An estimated time, rounded."""
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} seconds"
    return f"{round(seconds / 60)} minutes"


def saved(kept: Sequence[SavedBenchmark], opened: str) -> str:
    """The saved benchmarks, one of them open. HTML."""
    if not kept:
        return ""
    rows = "".join(_opened(one) if one.name == opened else _closed(one) for one in kept)
    return (
        '<section aria-labelledby="saved-title"><h3 id="saved-title">Saved benchmarks</h3>'
        f'<ul class="saved">{rows}</ul></section>'
    )


def _line(one: SavedBenchmark, act: str) -> str:
    record = one.record
    best = record.best
    speed = best.all.speedup if best is not None else None
    date = record.date[:16].replace("T", " ")
    return (
        f'<div class="head"><div><b>{escape(record.model)}</b> <span class="tag good">{times(speed)}</span>'
        f"<small>{date} UTC, {escape(record.machine)}</small></div>{act}</div>"
    )


def _closed(one: SavedBenchmark) -> str:
    return f"<li>{_line(one, button('Show', 'open', one.name))}</li>"


def _opened(one: SavedBenchmark) -> str:
    key = f"remove-{one.name.replace('.', '-')}"
    remove = confirmed(
        key,
        "Delete",
        "Delete this benchmark? Its file is removed from this computer.",
        button("Delete it", "remove", one.name, "primary"),
    )
    name = f"slipstream-{escape(one.name)}"
    acts = (
        f'<div class="row"><button type="button" class="soft" data-do="save-picture" data-text="{name}">'
        f'Save as PNG</button><button type="button" class="soft" data-do="save-record" '
        f'data-text="{name}">Save as JSON</button>{remove}</div>'
    )
    return (
        f'<li class="opened" data-record="{escape(as_json(one.record))}">'
        f"{_line(one, button('Close', 'open'))}<p>{escape(summary(one.record))}</p>"
        f'<figure class="picture">{card(one.record)}</figure>{acts}{table(one.record)}</li>'
    )


def table(record: BenchmarkRecord) -> str:
    """Speed-up by category and mode. HTML."""
    lanes = [lane for lane in record.lanes if lane.drafter != PLAIN]
    head = "".join(f'<th scope="col">{escape(mode_name(lane.drafter))}</th>' for lane in lanes)
    names = list(dict.fromkeys(name for lane in lanes for name in lane.categories))
    rows = [_row(kind(name), [lane.categories.get(name) for lane in lanes]) for name in names]
    taken = "".join(
        f"<td>{percent(lane.all.accepted / lane.all.drafted if lane.all.drafted else None)}</td>"
        for lane in lanes
    )
    return (
        "<details><summary>Every figure</summary>"
        '<div class="wide" tabindex="0" role="region" aria-label="Speed-up by kind of prompt">'
        f'<table style="min-width:{9 + 6 * len(lanes)}rem"><thead><tr><th scope="col">Speed-up</th>{head}</tr></thead><tbody>{"".join(rows)}'
        f"{_row('All', [lane.all for lane in lanes])}"
        f'<tr><th scope="row">Accepted</th>{taken}</tr></tbody></table></div>'
        f'<p class="note">{escape(agreement(record))}{_refused(record)}</p></details>'
    )


def _row(name: str, figures: Sequence[Figures | None]) -> str:
    cells = "".join(f"<td>{times(one.speedup if one else None)}</td>" for one in figures)
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'


def _refused(record: BenchmarkRecord) -> str:
    return "".join(
        f" {escape(mode_name(name))} cannot run with this model: {escape(why)}."
        for name, why in record.refused.items()
    )
