"""The priors of the tuner, from which the next answer starts, as HTML."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from app.history.evidence import LIFE_DAYS, WINDOW
from app.history.records import Conditions
from app.history.task_class import TaskClass, TemperatureClass
from engine.request import Prior
from ui.chat.caption import mode_name
from ui.history.charts import percent, task, times
from ui.widgets import bar, button, confirmed

_TEMPERATURES = {
    TemperatureClass.GREEDY: "temperature 0",
    TemperatureClass.COOL: "low temperature",
    TemperatureClass.COOL_SEEDED: "low temperature, with a seed",
    TemperatureClass.HOT: "high temperature",
    TemperatureClass.HOT_SEEDED: "high temperature, with a seed",
}
DEPTHS = 5  # that are shown

Known = tuple[Conditions, Sequence[Prior]]


def section(seen: Sequence[Known]) -> str:
    """By model, with a line for each kind of answer. HTML."""
    ordered = sorted(seen, key=lambda one: (one[0].model, one[0].draft))  # stable: newest first
    models = groupby(ordered, key=lambda one: (one[0].model, one[0].draft))
    shown = "".join(
        _model(number, model, draft, list(rows))
        for number, ((model, draft), rows) in enumerate(models)
    )
    every = confirmed(
        "forget-all",
        "Forget all",
        "Forget the figures of every model? Statistics start over; conversations are kept.",
        button("Forget all figures", "forget", kind="primary"),
    )
    return (
        '<section aria-labelledby="priors"><div class="head"><h2 id="priors">What the next answer '
        f"starts from</h2>{every}</div><p class='note'>Evidence from the newest {WINDOW} answers of a "
        f"kind, none older than {LIFE_DAYS:.0f} days; older ones count less. Each answer then uses "
        f"its own measurements.</p>{shown}</section>"
    )


def _model(number: int, model: str, draft: str, rows: Sequence[Known]) -> str:
    forget = confirmed(
        f"forget-{number}",
        "Forget",
        f"Forget the figures of {model}? Statistics start over; conversations are kept.",
        button("Forget its figures", "forget", model, "primary"),
    )
    about = f"with {draft} as draft model, " if draft else ""
    known = [(one, priors) for one, priors in sorted(rows, key=_kind_of) if priors]
    body = "".join(_kind(one, priors) for one, priors in known)
    rest = "" if known else "<p>Too little was measured so far.</p>"
    return (
        f'<article class="priors-of"><div class="head"><h3>{escape(model)}</h3>{forget}</div>'
        f'<p class="note">{escape(about + rows[0][0].machine)}</p>{rest}<div>{body}</div></article>'
    )


def _kind_of(row: Known) -> tuple[int, int]:
    """By task, then by temperature."""
    conditions = row[0]
    return list(TaskClass).index(conditions.task), list(_TEMPERATURES).index(conditions.temperature)


def _kind(conditions: Conditions, priors: Sequence[Prior]) -> str:
    lines = "".join(map(_line, sorted(priors, key=lambda prior: -(prior.pace or 0.0))))
    return (
        f"<details><summary><b>{task(conditions.task)}</b><small>{_TEMPERATURES[conditions.temperature]}"
        f'</small><span>{escape(_gist(priors))}</span></summary><ul class="priors">{lines}</ul></details>'
    )


def _gist(priors: Iterable[Prior]) -> str:
    """The fastest drafter in one sentence."""
    timed = [prior for prior in priors if prior.pace is not None]
    best = max(timed, key=lambda prior: prior.pace or 0.0, default=None)
    if best is None or best.pace is None:
        return "No drafter was timed long enough; the next answer measures them."
    name = mode_name(best.drafter)
    if best.pace <= 1.0:
        return f"No drafter is expected to be faster than plain decoding; {name} comes closest."
    return f"{name} is expected to be fastest: {best.pace:.1f} times plain decoding."


def _line(prior: Prior) -> str:
    shares = [taken / looked for looked, taken in prior.depths if looked > 0][:DEPTHS]
    drawn = "".join(
        f'<span class="depth">{bar([("fill", share, percent(share))], f"token {at}: {percent(share)}")}'
        f"<small>{percent(share)}</small></span>"
        for at, share in enumerate(shares, start=1)
    )
    first = prior.depths[0][0] if prior.depths else 0.0
    evidence = "acceptance not measured" if not shares else f"on {first:.0f} passes"
    timed = "not timed" if prior.pace is None else f"{times(prior.pace)}"
    rests = f" on {prior.pace_weight:.0f} tokens" if prior.pace is not None else ""
    return (
        f"<li><b>{escape(mode_name(prior.drafter))}</b><span>{timed}<small>{rests}</small></span>"
        f'<span class="depths">{drawn}</span><small>{evidence}</small></li>'
    )
