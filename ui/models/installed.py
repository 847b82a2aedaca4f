"""Models on this computer: installed ones, those of other programs, and forms to add more."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from app.chat.remote.engines import EngineReport
from app.models.downloads.partial_file import shown_bytes
from app.models.library.installed import Installed, Inventory
from app.models.library.other_programs import ForeignModel
from ui.widgets import button, confirmed, note, options, sentence

_IN_USE = '<span class="tag good">In use</span>'
MOST_SHOWN = 12  # models of one engine
LOOKING = '<p class="note" role="status">Reading the models of this computer \u2026</p>'
_PATH_FORM = """
<details class="way"><summary>Add a model from a disk</summary>
<form data-command="add"><input type="text" name="path" aria-label="Path of a folder or of a GGUF file"
 placeholder="/path/to/a/folder or a file.gguf" autocomplete="off" spellcheck="false">
<button type="submit" class="soft">Add</button></form>
<p class="note">A folder with config.json and *.safetensors, or a GGUF file. Files are linked, not
copied, where the disk allows.</p></details>
"""


@dataclass(frozen=True, slots=True)
class Use:
    """Names of models in memory, draft included, and of the one that is being loaded."""

    names: frozenset[str]
    loading: str
    model: str = ""  # the one that answers
    context: int = 0  # tokens of its longest conversation
    contexts: Sequence[tuple[int, int]] = ()  # that it may have, with the bytes that they take
    away: bool = False  # another engine answers at present
    loaded: float = 0.0  # share of the weights of ``loading`` that are in memory; 0: not known


def section(shelf: Inventory, use: Use) -> str:
    """All models on this computer. HTML."""
    missing = {fit.entry.name: fit.entry.size or 0 for fit in shelf.offered}
    rows = "".join(
        _row(
            number,
            one,
            use,
            missing.get(one.entry.draft or ""),
            shelf.advice.get(one.entry.name, ""),
        )
        for number, one in enumerate(shelf.installed)
    )
    others = "".join(map(_other, shelf.elsewhere))
    found = (
        f'<h3 id="elsewhere">In other programs</h3><ul class="rows" aria-labelledby="elsewhere">{others}</ul>'
        if others
        else ""
    )
    return (
        '<section aria-labelledby="here"><h2 id="here">On this computer</h2>'
        f'<ul class="rows" aria-labelledby="here">{rows}</ul>{found}</section>'
    )


def ways(*, kept: bool, wanted: bool) -> str:
    """Import by path, and the token; drawn again only when they change, so typed text stays. HTML."""
    return f'<section class="ways" aria-label="Add">{_PATH_FORM}{_token(kept=kept, wanted=wanted)}</section>'


def token_form(place: str) -> str:
    """A field for the hub's token; it is never shown. HTML."""
    return (
        f'<form data-command="token" class="token"><input type="password" name="token" id="token-{place}" '
        'aria-label="Hugging Face token" placeholder="hf_\u2026" autocomplete="off" required>'
        '<button type="submit" class="soft">Keep the token</button></form>'
    )


def _token(*, kept: bool, wanted: bool) -> str:
    state = (
        f"<p>A token is kept. {button('Forget it', 'token')}</p>"
        if kept
        else '<p class="note">Some models can be downloaded only after you accept their terms on '
        "Hugging Face. The token is kept in a file that only you can read, and sent only to "
        "the hub.</p>"
    )
    return (
        f'<details class="way"{" open" if wanted else ""}><summary>Token for gated models</summary>'
        f"{token_form('here')}{state}</details>"
    )


def _row(number: int, one: Installed, use: Use, missing: int | None, advice: str) -> str:
    """``missing`` is the size of its draft in bytes, if that is not installed."""
    entry = one.entry
    label = f"Get its draft, {shown_bytes(missing or 0)}"
    draft = "" if missing is None else button(label, "get", entry.name, "soft")
    size = shown_bytes(one.size)
    place = "bundled" if one.bundled else f"used at {entry.folder}" if one.reference else ""
    facts = " \u00b7 ".join(filter(None, (size, entry.licence, place)))
    return (
        f'<li data-row="{escape(entry.name)}" tabindex="-1"><div class="what"><b>{escape(entry.name)}'
        f'</b><small>{escape(facts)}</small>{_fault(one)}{note(advice)}{_contexts(one, use)}</div><div class="acts">'
        f"{draft}{_using(one, use)}{'' if one.bundled else _delete(number, one, use)}</div></li>"
    )


def _contexts(one: Installed, use: Use) -> str:
    """The size of the context with its cost, for the model that answers."""
    if one.entry.name != use.model or len(use.contexts) < 2:
        return ""
    costs = dict(use.contexts)
    costs.setdefault(use.context, 0)
    shown = options(sorted(costs), use.context, shown=lambda size: _context(size, costs[size]))
    return (
        '<form data-command="context" class="find"><label>Context <select name="context" '
        f'aria-label="Context of {escape(use.model)}">{shown}</select></label>'
        '<button type="submit" class="quiet">Load with this context</button></form>'
    )


def _context(tokens: int, size: int) -> str:
    cost = f", takes {shown_bytes(size)}" if size else ", as now"
    return f"{tokens:,} tokens{cost}"


def _fault(one: Installed) -> str:
    said = f"{one.fault}; bring it back, or delete this entry" if one.fault else ""
    return f'<p class="note alarm">{escape(sentence(said))}</p>' if said else ""


def _using(one: Installed, use: Use) -> str:
    name = one.entry.name
    if use.loading == name:
        share = f'<span aria-hidden="true"> {use.loaded:.0%}</span>' if use.loaded else ""
        return f'<span class="tag" role="status">Loading \u2026{share}</span>'
    if name in use.names and not use.away:
        return _IN_USE
    return button("Use", "use", name, "soft")


def _delete(number: int, one: Installed, use: Use) -> str:
    name = one.entry.name
    frees = f"That frees {shown_bytes(one.frees)}."
    if one.reference:
        frees = f"Its files stay at {one.entry.folder}."
    elif one.shared:
        frees = "Its files stay where other programs use them."
    elif one.frees < one.size:
        frees += " Files that other programs also use stay."
    first = " It is in use: the bundled model is loaded in its place first."
    question = f"Delete {name}? {frees}{first if name in use.names else ''}"
    act = button("Delete", "delete", name, "primary", name)
    return confirmed(f"delete-{number}", "Delete", question, act)


def engines(reports: Sequence[EngineReport], current: str) -> str:
    """Engines of other programs and machines, with their models. HTML."""
    if not reports:
        return ""
    rows = "".join(_engine(report, current) for report in reports)
    return (
        '<section aria-labelledby="engines"><h2 id="engines">On other engines</h2>'
        f'<ul class="rows" aria-labelledby="engines">{rows}</ul></section>'
    )


def _engine(report: EngineReport, current: str) -> str:
    """A row for each model, or one that says what is wrong."""
    rest = len(report.models) - MOST_SHOWN
    more = f"{rest} more are in the chat's list of models" if rest > 0 else ""
    said = f'<p class="note alarm">{escape(sentence(report.problem))}</p>' if report.problem else ""
    head = (
        f'<li><div class="what"><b>{escape(report.name)}</b><small>{escape(report.address)}</small>'
        f"{said}{note(sentence(more))}</div></li>"
    )
    return head + "".join(
        _away(f"{report.name}/{one}", current) for one in report.models[:MOST_SHOWN]
    )


def _away(name: str, current: str) -> str:
    using = _IN_USE if name == current else button("Use", "use", name, "soft")
    return (
        f'<li data-row="{escape(name)}" tabindex="-1"><div class="what"><b>{escape(name)}</b></div>'
        f'<div class="acts">{using}</div></li>'
    )


def _other(one: ForeignModel) -> str:
    facts = f"{shown_bytes(one.size)} \u00b7 {one.program}"
    return (
        f'<li data-row="{escape(str(one.path))}" tabindex="-1"><div class="what"><b>{escape(one.name)}</b>'
        f'<small>{escape(facts)}</small></div><div class="acts">'
        f"{button('Add', 'add-found', str(one.path), 'soft')}</div></li>"
    )
