"""Models that can be downloaded: the best for this machine, the catalogue, a search of the hub."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from app.models.catalog import CatalogEntry
from app.models.downloads.partial_file import shown_bytes
from app.models.hub.search import Found
from app.models.library.fit import Fit, no_room
from app.models.library.repository_view import Choice, RepositoryView
from engine.hardware.plan import Plan
from ui.chat.caption import mode_name
from ui.widgets import button, note, sentence

_DOT = " \u00b7 "
_KINDS = (("draft", "With a draft model"), ("gguf", "GGUF"), ("open", "Not gated"))
_CHIPS = "".join(
    f'<button type="button" class="chip-toggle" data-kind="{kind}" aria-pressed="false">{label}</button>'
    for kind, label in _KINDS
)
FIND = f"""
<section aria-labelledby="more"><h2 id="more">Get more</h2>
<form data-command="search" class="find"><input type="search" id="models-search" name="words"
 aria-label="Search models" placeholder="Name, family or size" autocomplete="off">
<button type="submit" class="soft">Search Hugging Face</button></form>
<div class="chips" role="group" aria-label="Show only">{_CHIPS}</div></section>
"""


def banner(suggested: Fit | None, busy: Collection[str]) -> str:
    """The best model for this machine, if it is better than the installed ones. HTML."""
    if suggested is None or suggested.entry.name in busy:
        return ""
    entry = suggested.entry
    return (
        '<section class="banner" aria-labelledby="best"><div class="what">'
        f'<h2 id="best">Best for this computer: {escape(entry.name)}</h2>'
        f"<p>{escape(entry.description)} {escape(_promise(suggested))}</p>"
        f'<p class="note">{escape(suggested.where)}</p></div>'
        f'<div class="acts">{_get(suggested, "primary")}</div></section>'
    )


@dataclass(frozen=True, slots=True)
class Notes:
    """What rows say besides: which models are on their way, and faster types of GGUF files."""

    busy: Collection[str]
    advice: Mapping[str, str]  # name of a model -> a sentence
    unmeasured: str = ""  # how to measure the types


def catalogue(offered: Sequence[Fit], notes: Notes) -> str:
    """Every model of the catalogue that is not installed, by how it would run. HTML."""
    well = [fit for fit in offered if fit.whole]
    slow = [fit for fit in offered if fit.runs and not fit.whole]
    never = [fit for fit in offered if not fit.runs]
    return (
        f'<section aria-label="Catalogue">{note(notes.unmeasured)}'
        f"{_group('Runs well on this computer', well, notes)}"
        f"{_group('Runs, but reads layers from a slower memory for every pass', slow, notes)}"
        f"{_group('Too large for this computer', never, notes, folded=True)}"
        '<p class="note none" role="status" hidden>No model of the catalogue has these words.</p></section>'
    )


def results(words: str, found: Sequence[Found] | None, looks: Mapping[str, RepositoryView]) -> str:
    """The hub's results, most downloaded first; nothing before a search. HTML."""
    if found is None:
        return ""
    rows = "".join(_found(one, looks.get(one.repo)) for one in found)
    none = "" if rows else '<p class="note">No text model that could run here has these words.</p>'
    heading = f"On Hugging Face: {words}"
    return (
        f'<section aria-labelledby="hub"><h2 id="hub">{escape(heading)}</h2>'
        f'<ul class="rows" aria-labelledby="hub">{rows}</ul>{none}</section>'
    )


def _group(heading: str, fits: Sequence[Fit], notes: Notes, *, folded: bool = False) -> str:
    if not fits:
        return ""
    rows = f'<ul class="rows">{"".join(_row(fit, notes) for fit in fits)}</ul>'
    if folded:
        return f'<details class="group"><summary>{heading} ({len(fits)})</summary>{rows}</details>'
    return f'<div class="group"><h3>{heading}</h3>{rows}</div>'


def _row(fit: Fit, notes: Notes) -> str:
    entry = fit.entry
    kinds = [kind for kind, has in (("draft", entry.draft), ("gguf", entry.gguf), ("open", not entry.gated)) if has]  # fmt: skip
    words = f"{entry.name} {entry.repo} {entry.description} {entry.licence}".lower()
    gated = '<span class="tag">Gated</span>' if entry.gated else ""
    act = '<span class="tag">In the queue</span>' if entry.name in notes.busy else _get(fit, "soft")
    faster = note(notes.advice.get(entry.name, "")) if fit.runs else ""
    drafts = note(entry.unused_drafts)
    return (
        f'<li data-row="{escape(entry.name)}" data-words="{escape(words)}" data-kinds="{" ".join(kinds)}" '
        f'tabindex="-1"><div class="what"><b>{escape(entry.name)}{gated}</b>'
        f'<p>{escape(entry.description)}</p><small class="facts">{escape(_facts(entry))}</small>'
        f'{_how(fit)}{faster}{drafts}</div><div class="acts">{act if fit.runs else ""}</div></li>'
    )


def _facts(entry: CatalogEntry) -> str:
    parts = [
        _count(entry.parameters),
        "GGUF" if entry.gguf else "safetensors",
        f"{entry.context:,} tokens of context" if entry.context else "",
        entry.licence,
    ]
    return _DOT.join(filter(None, parts))


def _count(parameters: int | None) -> str:
    if parameters is None:
        return ""
    if parameters < 1e9:
        return f"{parameters / 1e6:.0f}M parameters"
    return f"{parameters / 1e9:.1f}B parameters"


def _how(fit: Fit) -> str:
    """The mode and the memory in one line, and the reasons on a click."""
    if not fit.runs:
        return f'<p class="note">{escape(fit.where)}</p>'
    room = "" if fit.storable else f'<p class="note alarm">{escape(no_room(fit))}</p>'
    if fit.planned is None:
        return f'<p class="note">{escape(fit.where)}</p>{room}'
    return f"{_plan(fit.planned, _outlook(fit), paired=fit.entry.draft is not None)}{room}"


def _plan(plan: Plan, outlook: str, *, paired: bool) -> str:
    fields = ("drafter", *(("draft_model",) if paired else ()), "placement", "context")
    why = "".join(f"<li>{escape(plan.reason(field))}</li>" for field in fields)
    mode = mode_name(plan.drafter)
    return (
        f'<details class="how"><summary><b>{escape(mode)}</b> {escape(outlook)}</summary>'
        f"<ul>{why}</ul></details>"
    )


def _outlook(fit: Fit) -> str:
    """The memory that it would use and the highest speed, in one sentence."""
    return sentence(", ".join((fit.planned.stage, *_extras(fit)))) if fit.planned else ""


def _promise(fit: Fit) -> str:
    """The same without the memory, which has a sentence of its own."""
    return sentence(", ".join(_extras(fit)))


def _extras(fit: Fit) -> Iterator[str]:
    if fit.planned and fit.planned.draft_model:
        yield f"with its draft {fit.planned.draft_model}"
    if fit.planned and fit.rate:
        yield f"up to {fit.rate:.0f} tokens/s before drafting"


def _get(fit: Fit, kind: str) -> str:
    label = f"Get {shown_bytes(fit.size)}"
    draft = (
        f"<small>with its draft, {shown_bytes(fit.draft.size or 0)}</small>" if fit.draft else ""
    )
    return button(label, "get", fit.entry.name, kind, fit.entry.name) + draft


def _found(one: Found, look: RepositoryView | None) -> str:
    known = [
        _count(one.parameters),
        "GGUF" if one.gguf else "safetensors",
        shown_bytes(one.size) if one.size else "",
        one.licence or "",
        f"{one.downloads:,} downloads",
    ]
    gated = '<span class="tag">Gated</span>' if one.gated else ""
    act = "" if look else button("Does it fit?", "inspect", one.repo, "soft", one.repo)
    return (
        f'<li data-row="{escape(one.repo)}" tabindex="-1"><div class="what"><b>{escape(one.repo)}{gated}</b>'
        f'<small class="facts">{escape(_DOT.join(filter(None, known)))}</small>'
        f'{_looked(look) if look else ""}</div><div class="acts">{act}</div></li>'
    )


def _looked(look: RepositoryView) -> str:
    choices = "".join(_choice(look, one) for one in look.choices)
    if look.known is None or look.known.gguf:
        return choices
    return f'<p class="note">In the catalogue as {escape(look.known.name)}.</p>{choices}'


def _choice(look: RepositoryView, one: Choice) -> str:
    how = (
        _plan(one.planned, sentence(str(one.planned.stage)), paired=False)
        if one.planned
        else f'<p class="note">{escape(one.where)}</p>'
    )
    name = f"{look.repo} {one.label}"
    get = button(f"Get {shown_bytes(one.size)}", "get-file", name, "soft", one.label)
    return f'<div class="choice"><div class="what"><b>{escape(one.label)}</b>{how}{note(one.advice)}</div>{get if one.runs else ""}</div>'
