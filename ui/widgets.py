"""HTML parts that the tabs share: buttons that send commands, notices, bars, dialogs."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeVar

GIB = 2**30
T = TypeVar("T", str, int)
_NAME = re.compile(r"[./_\d]|-.+-")

# Line icons, 16 units wide, in the colour of the text around them.
_SHAPES = {
    "copy": '<path d="M5.5 5.5V3.2c0-.7.5-1.2 1.2-1.2h6.1c.7 0 1.2.5 1.2 1.2v6.1c0 .7-.5 1.2-1.2 '
    "1.2h-2.3M3.2 5.5h6.1c.7 0 1.2.5 1.2 1.2v6.1c0 .7-.5 1.2-1.2 1.2H3.2c-.7 0-1.2-.5-1.2-1.2V6.7"
    'c0-.7.5-1.2 1.2-1.2z"/>',
    "again": '<path d="M13.2 6.5A5.5 5.5 0 1 0 13.5 9M13.5 2.5v4h-4"/>',
    "forward": '<path d="M3 8h9.5M8.5 3.5 13 8l-4.5 4.5"/>',
    "edit": '<path d="M10.8 2.8l2.4 2.4L5.6 12.8l-3 .6.6-3z"/>',
    "left": '<path d="M10 3.5 5.5 8l4.5 4.5"/>',
    "right": '<path d="M6 3.5 10.5 8 6 12.5"/>',
    "more": '<path d="M3 8h.01M8 8h.01M13 8h.01" stroke-width="2.2" stroke-linecap="round"/>',
    "plus": '<path d="M8 3v10M3 8h10"/>',
    "clip": '<path d="M13 7.5 8.2 12.3a3 3 0 0 1-4.3-4.3L9 3a2 2 0 0 1 2.9 2.9L7 10.8a1 1 0 0 1-1.4-1.4L10 5"/>',
    "pin": '<path d="M5.5 2.5h5l-.7 4.2 2.2 2.3H4l2.2-2.3zM8 9v4.5"/>',
    "cross": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "menu": '<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h11"/>',
    "sliders": '<path d="M2.5 5h6M11.5 5h2M2.5 11h2M7.5 11h6"/><circle cx="10" cy="5" r="1.5"/>'
    '<circle cx="6" cy="11" r="1.5"/>',
    "moon": '<path d="M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6z"/>',
    "leave": '<path d="M6.5 2.5H4c-.8 0-1.5.7-1.5 1.5v8c0 .8.7 1.5 1.5 1.5h2.5M10.5 11l3-3-3-3M13 8H6.5"/>',
    "help": '<path d="M6 6a2 2 0 1 1 2.7 1.9c-.5.2-.7.5-.7 1.1M8 11.6v.1"/><circle cx="8" cy="8" r="6"/>',
    "file": '<path d="M4 2h5l3 3v9H4zM9 2v3h3"/>',
}


def sheet(*sections: str) -> str:
    """The content of a region, different each time, so that the page draws it and its buttons again."""
    return f'<div class="sheet" data-drawn="{time.monotonic_ns()}">{"".join(sections)}</div>'


def notice(text: str, *, alarm: bool = False, more: str = "") -> str:
    """A line that says what was done; ``more`` is HTML after it. HTML."""
    role, kind = ("alert", " alarm") if alarm else ("status", "")
    return f'<p class="result{kind}" role="{role}">{escape(sentence(text))}{more}</p>'


def note(said: str) -> str:
    """A quiet sentence below something; nothing without one. HTML."""
    return f'<p class="note">{escape(said)}</p>' if said else ""


def sentence(text: str) -> str:
    """Add a capital and a full stop; a first word that looks like a name of a file or model keeps its case."""
    text = text.strip()
    if not text:
        return ""
    if not _NAME.search(text.split(maxsplit=1)[0].rstrip(".,:;")):
        text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else f"{text}."


def button(label: str, command: str, name: str = "", kind: str = "quiet", about: str = "") -> str:
    """A button that sends a command about ``name``; screen readers read ``about``, too. HTML."""
    read = f' aria-label="{escape(f"{label}: {about}")}"' if about else ""
    return (
        f'<button type="button" class="{kind}" data-command="{command}" data-name="{escape(name)}"'
        f"{read}>{escape(label)}</button>"
    )


def options(values: Iterable[T], chosen: T | None = None, shown: Callable[[T], str] = str) -> str:
    """The choices of a list; ``shown`` gives what a person reads. HTML."""
    return "".join(
        f'<option value="{escape(str(one))}"{" selected" if one == chosen else ""}>'
        f"{escape(shown(one))}</option>"
        for one in values
    )


def counted(number: int, one: str) -> str:
    """A number of things as text; ``one`` is the word for one of them."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def confirmed(key: str, label: str, question: str, act: str) -> str:
    """A button and the dialog that it opens; ``act`` is the HTML of the button that confirms."""
    return (
        f'<button type="button" class="quiet" popovertarget="{key}">{escape(label)}</button>'
        f'<div id="{key}" class="confirm" popover role="dialog" aria-labelledby="{key}-question">'
        f'<p id="{key}-question">{escape(question)}</p><div class="row">{act}'
        f'<button type="button" class="quiet" popovertarget="{key}" popovertargetaction="hide">'
        "Cancel</button></div></div>"
    )


def bar(parts: Sequence[tuple[str, float, str]], label: str) -> str:
    """Shares of a whole side by side: (class, share, title). An SVG that scales with its place."""
    at, shapes = 0.0, []
    for kind, share, title in parts:
        width = 100 * max(0.0, min(share, 1.0 - at))
        shapes.append(
            f'<rect class="{kind}" x="{100 * at:.2f}" width="{width:.2f}" height="8">'
            f"<title>{escape(title)}</title></rect>"
        )
        at += width / 100
    return (
        f'<svg class="bar" role="img" aria-label="{escape(label)}" viewBox="0 0 100 8" '
        f'preserveAspectRatio="none"><rect class="track" width="100" height="8"/>{"".join(shapes)}</svg>'
    )


def icon(name: str) -> str:
    """An SVG that screen readers skip, as its button has the label."""
    return f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{_SHAPES[name]}</svg>'
