"""The list of conversations, as HTML."""

from collections.abc import Sequence
from html import escape

from app.history.records import Conversation
from ui.icons import icon

_ACTIONS = (
    ("rename", "Rename"),
    ("pin", "Pin"),
    ("export-markdown", "Export as Markdown"),
    ("export-json", "Export as JSON"),
    ("delete", "Delete"),
)
MENU = f"""
<div id="menu" popover role="dialog" aria-label="This conversation"><div id="menu-acts">{
    "".join(f'<button type="button" data-list="{do}">{label}</button>' for do, label in _ACTIONS)
}</div><div id="renaming" class="row" hidden><input id="new-title" aria-label="New title" maxlength="200">
<button type="button" class="quiet" data-list="save">Save</button></div></div>
"""


def sidebar(conversations: Sequence[Conversation], current: str | None, words: str) -> str:
    """Pinned ones first, under their own heading; ``words`` are those of a search."""
    if not conversations:
        text = (
            "No conversation has these words."
            if words.strip()
            else "Your conversations appear here."
        )
        return f'<p class="none">{text}</p>'
    pinned = [one for one in conversations if one.pinned]
    others = [one for one in conversations if not one.pinned]
    heading = "Found" if words.strip() else "Recent"
    return _group("Pinned", pinned, current) + _group(heading, others, current)


def _group(heading: str, conversations: Sequence[Conversation], current: str | None) -> str:
    if not conversations:
        return ""
    items = "".join(_item(one, current=one.id == current) for one in conversations)
    return f"<h2>{heading}</h2><ul>{items}</ul>"


def _item(one: Conversation, *, current: bool) -> str:
    name = escape(one.title) or "Untitled"
    mark = ' aria-current="true"' if current else ""
    pinned = " data-pinned" if one.pinned else ""
    return (
        f'<li><button type="button" class="open" data-do="open" data-id="{one.id}"{mark}>{name}'
        f'</button><button type="button" class="act more" data-do="menu" data-id="{one.id}" '
        f'data-text="{escape(one.title)}"{pinned} aria-label="Actions for {name}">{icon("more")}'
        "</button></li>"
    )
