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


def sidebar(conversations: Sequence[Conversation], current: str | None, words: str) -> str:
    """Pinned ones under their own heading; ``words`` are what was searched for."""
    if not conversations:
        told = "Nothing has these words." if words.strip() else "Your conversations appear here."
        return f'<p class="none">{told}</p>'
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
    actions = "".join(_action(do, label, one) for do, label in _ACTIONS)
    return (
        f'<li data-item="{one.id}"><button type="button" class="open" data-do="open" '
        f'data-id="{one.id}"{mark}>{name}</button>'
        f'<details class="menu"><summary aria-label="Actions for {name}">{icon("more")}</summary>'
        f"<div>{actions}</div></details></li>"
    )


def _action(do: str, label: str, one: Conversation) -> str:
    if do == "pin" and one.pinned:
        do, label = "unpin", "Unpin"
    title = f' data-text="{escape(one.title)}"' if do == "rename" else ""
    return f'<button type="button" data-do="{do}" data-id="{one.id}"{title}>{label}</button>'
