"""Acceptance and speed as small charts: by day, drafter, task class and model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from app.chat.remote.answer import REMOTE
from app.history.figures import Cell, Sums, added_by
from engine.request import PLAIN
from ui.chat.caption import mode_name
from ui.widgets import bar, options

DAYS = 30  # the latest days with answers

_TASKS = {"code": "Code", "maths": "Maths", "edit": "Working on a text", "chat": "Conversation"}
_TALL = 48.0


def nothing() -> str:
    """An explanation of this tab before anything was measured. HTML."""
    return (
        '<section class="empty"><h2>Nothing has been measured yet</h2>'
        "<p>Every answer adds to this page. After the first one you will see</p><ul>"
        "<li>how many drafted tokens the model accepted, and how much faster that was than plain "
        "decoding, by model, drafter, kind of task and day;</li>"
        "<li>what the next answer starts from: which drafter is expected to be fastest for which task, "
        "and how much that is based on.</li></ul><p>The figures stay on this computer.</p></section>"
    )


def section(cells: Sequence[Cell], model: str) -> str:
    """Everything measured with ``model``, or with all models if that is empty. HTML."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    chosen = [cell for cell in cells if model in ("", cell.model)] or list(cells)
    drafted = [cell for cell in chosen if cell.drafter not in (PLAIN, REMOTE)]
    total = sum((cell.sums for cell in drafted), Sums())
    tables = [("Drafter", _by(chosen, "drafter", mode_name)), ("Task", _by(drafted, "task", task))]
    if len(models) > 1 and not model:
        tables.append(("Model", _by(drafted, "model", str)))
    shown = "".join(_table(heading, rows) for heading, rows in tables if rows)
    return (
        f'<section aria-labelledby="performed"><div class="head"><h2 id="performed">How drafting performed</h2>'
        f"{_picker(models, model)}</div>{_total(total)}{_days(drafted)}{shown}"
        '<p class="note">Speed is relative to plain decoding at its measured cost on this machine, without '
        "reading prompts. Accepted is the share of the verified draft tokens.</p>"
        "</section>"
    )


def task(name: str) -> str:
    """The name of a class of tasks for people."""
    return _TASKS.get(name, name.capitalize())


def times(pace: float | None) -> str:
    """A speed-up as text."""
    return "not timed" if pace is None else f"{pace:.2f}\u00d7"


def percent(share: float | None) -> str:
    """A share as text."""
    return "\u2013" if share is None else f"{share:.0%}"


def _picker(models: Sequence[str], model: str) -> str:
    if len(models) < 2:
        return ""
    listed = options(("", *models), model, lambda name: name or "All models")
    return f'<label><span>Model</span><select data-command="model">{listed}</select></label>'


def _total(total: Sums) -> str:
    if not total.emitted:
        return "<p>Nothing was drafted on this machine so far.</p>"
    figures = (
        (times(total.pace), "as fast as plain"),
        (percent(total.acceptance), "of verified draft tokens accepted"),
        ("\u2013" if total.rate is None else f"{total.rate:,.0f}", "tokens per second"),
        (f"{total.emitted:,}", "tokens written with drafts"),
    )
    shown = "".join(f"<div><dd>{value}</dd><dt>{label}</dt></div>" for value, label in figures)
    return f'<dl class="totals">{shown}</dl>'


def _by(cells: Iterable[Cell], field: str, name: Callable[[str], str]) -> list[tuple[str, Sums]]:
    """Most tokens first."""
    sums = added_by(cells, field)
    return sorted(((name(key), one) for key, one in sums.items()), key=lambda row: -row[1].emitted)


def _table(heading: str, rows: Sequence[tuple[str, Sums]]) -> str:
    fastest = max((one.pace or 0.0 for _, one in rows), default=0.0) or 1.0
    body = "".join(_row(name, one, max(fastest, 1.0)) for name, one in rows)
    return (
        f'<table class="measured"><thead><tr><th scope="col">{heading}</th><th scope="col">Speed</th>'
        f'<th scope="col">Accepted</th></tr></thead><tbody>{body}</tbody></table>'
    )


def _row(name: str, one: Sums, fastest: float) -> str:
    rate = "" if one.rate is None else f"{one.rate:,.0f} tokens/s, "
    pace, share = times(one.pace), percent(one.acceptance)
    return (
        f'<tr><th scope="row">{escape(name)}<small>{rate}{one.emitted:,} tokens</small></th>'
        f"<td>{_measure(one.pace, fastest, pace, name)}</td>"
        f"<td>{_measure(one.acceptance, 1.0, share, name)}</td></tr>"
    )


def _measure(value: float | None, most: float, text: str, of: str) -> str:
    drawn = bar([("fill", (value or 0.0) / most, text)], f"{of}: {text}") if value else ""
    return f"<span>{text}</span>{drawn}"


def _days(cells: Sequence[Cell]) -> str:
    by_day = dict(sorted(added_by(cells, "day").items())[-DAYS:])
    if len(by_day) < 2:
        return ""
    paces = {day: one.pace for day, one in by_day.items()}
    shares = {day: one.acceptance for day, one in by_day.items()}
    return (
        '<div class="charts">'
        f"{_columns('Speed by day', paces, times, max(2.0, *(p or 0 for p in paces.values())), 1.0)}"
        f"{_columns('Accepted by day', shares, percent, 1.0, None)}</div>"
    )


def _columns(
    heading: str,
    values: Mapping[str, float | None],
    text: Callable[[float | None], str],
    most: float,
    line: float | None,
) -> str:
    """A column for each day; ``line`` is the value of plain decoding, drawn across."""
    wide = 10 * max(len(values), 8)
    step = (wide - 10) / max(len(values) - 1, 1)  # few days, too, begin and end where the axis does
    bars = "".join(
        f'<rect class="fill" x="{step * at + 1.5:.1f}" y="{_TALL * (1 - (value or 0) / most):.2f}" '
        f'width="7" height="{_TALL * (value or 0) / most:.2f}"><title>{day}: {text(value)}</title></rect>'
        for at, (day, value) in enumerate(values.items())
    )
    across = "" if line is None else _across(line / most, wide)
    days = list(values)
    days_text = "; ".join(f"{day} {text(value)}" for day, value in values.items())
    plain = "" if line is None else '<span class="dashed">plain</span>'
    return (
        f"<figure><figcaption><b>{heading}</b><span>{text(values[days[-1]])}</span></figcaption>"
        f'<svg role="img" aria-label="{heading}: {escape(days_text)}" viewBox="0 0 {wide} {_TALL:.0f}" '
        f'preserveAspectRatio="none">{bars}{across}</svg>'
        f'<div class="axis"><span>{days[0]}</span>{plain}<span>{days[-1]}</span></div></figure>'
    )


def _across(share: float, wide: int) -> str:
    y = _TALL * (1 - share)
    return f'<line class="plain" x1="0" x2="{wide}" y1="{y:.2f}" y2="{y:.2f}"/>'
