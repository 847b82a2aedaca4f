"""Plans as HTML: the memory that each model would use, its drafter, and why."""

from collections.abc import Container, Iterable, Sequence
from html import escape

from app.models.downloads.partial_file import shown_bytes
from app.models.library.simulation import Planned
from engine.hardware.plan import Need, Plan, Refusal, Tier
from engine.hardware.reasons import TITLES
from ui.chat.caption import mode_name
from ui.widgets import bar, sentence

Rows = Iterable[tuple[Planned, Planned]]  # on the simulated machine, and on this one

_KINDS = (("fill", "weights"), ("fill-2", "caches and buffers"), ("fill-3", "draft model"))
_WEIGHTS = ("layers", "embedding")


def section(key: str, heading: str, note: str, rows: Rows, opened: Container[str]) -> str:
    """Rows with details; those in ``opened`` are open. HTML."""
    shown = "".join(_row(f"{key}-{one.name}", one, here, opened) for one, here in rows)
    return (
        f'<section aria-labelledby="{key}"><div class="head"><h2 id="{key}">{heading}</h2></div>'
        f'<p class="note">{note}</p><div class="plans">{shown}</div></section>'
    )


def legend() -> str:
    """What the colours of the bars mean. HTML."""
    return "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in _KINDS)


def _row(key: str, one: Planned, here: Planned, opened: Container[str]) -> str:
    kind, tag = _verdict(one)
    was = _verdict(here)[1]
    facts = [mode_name(one.found.drafter)] if isinstance(one.found, Plan) else []
    facts += [f"here: {was}"] if was != tag else []
    return (
        f'<details data-key="{escape(key)}"{" open" if key in opened else ""}><summary>'
        f'<b>{escape(one.name)}</b><span class="tag {kind}">{escape(tag)}</span>'
        f"<small>{escape(', '.join(facts))}</small>{_bars(one.found)}</summary>{_reasons(one)}</details>"
    )


def _verdict(one: Planned) -> tuple[str, str]:
    """(class, words) of the tag."""
    if isinstance(one.found, Plan):
        whole = len(set(one.found.placement)) == 1 and Tier.DISK not in one.found.placement
        return ("good" if whole else ""), one.found.stage
    if isinstance(one.found, Refusal):
        return "alarm", "does not run"
    return "", "no plan"


def _bars(found: Plan | Refusal | None) -> str:
    if not isinstance(found, Plan):
        return '<span class="memory"></span>'  # the chevron stays in its column
    rows = "".join(
        _bar(TITLES[tier], [need for need in found.needs if need.tier == tier], free)
        for tier, free in found.room
        if found.needed(tier)
    )
    return f'<span class="memory">{rows}</span>'


def _bar(tier: str, needs: Sequence[Need], free: int) -> str:
    sums = dict.fromkeys((kind for kind, _ in _KINDS), 0)
    for need in needs:
        sums[_kind(need)] += need.bytes
    names = dict(_KINDS)
    parts = [
        (kind, size / max(free, 1), f"{names[kind]}: {shown_bytes(size)}")
        for kind, size in sums.items()
        if size
    ]
    used = f"{shown_bytes(sum(sums.values()))} of {shown_bytes(free)}"
    return f"<span><small>{tier} {used}</small>{bar(parts, f'{tier}: {used} free')}</span>"


def _kind(need: Need) -> str:
    if need.what.startswith("draft model"):
        return "fill-3"
    return "fill" if need.what.startswith(_WEIGHTS) else "fill-2"


def _reasons(one: Planned) -> str:
    if not isinstance(one.found, Plan):
        why = one.found.sentence if isinstance(one.found, Refusal) else one.note
        return f'<div class="why"><p>{escape(sentence(why))}</p></div>'
    reasons = "".join(
        f"<div><dt>{TITLES[reason.field]}</dt><dd>{escape(reason.sentence)}</dd></div>"
        for reason in one.found.why
    )
    return f'<div class="why"><dl class="pairs">{reasons}</dl>{_bytes(one.found.needs)}</div>'


def _bytes(needs: Iterable[Need]) -> str:
    """Every byte of the plan."""
    rows = "".join(
        f'<tr><th scope="row">{escape(need.what)}</th><td>{TITLES[need.tier]}</td>'
        f"<td>{shown_bytes(need.bytes)}</td></tr>"
        for need in needs
    )
    return (
        '<table><thead><tr><th scope="col">Takes</th><th scope="col">Of</th>'
        f'<th scope="col">Size</th></tr></thead><tbody>{rows}</tbody></table>'
    )
