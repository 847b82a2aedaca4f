"""HTML parts that the tabs share: buttons that send commands, notices, bars, dialogs."""

import time
from collections.abc import Sequence
from html import escape

GIB = 2**30


def sheet(*sections: str) -> str:
    """The content of a region, different each time, so that the page draws it and its buttons again."""
    return f'<div class="sheet" data-drawn="{time.monotonic_ns()}">{"".join(sections)}</div>'


def notice(text: str, *, alarm: bool = False, more: str = "") -> str:
    """A line that says what was done; ``more`` is HTML after it. HTML."""
    role, kind = ("alert", " alarm") if alarm else ("status", "")
    return f'<p class="result{kind}" role="{role}">{escape(sentence(text))}{more}</p>'


def sentence(text: str) -> str:
    """Add a capital and a full stop if they are missing."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def button(label: str, command: str, name: str = "", kind: str = "quiet") -> str:
    """A button that sends a command about ``name``. HTML."""
    return (
        f'<button type="button" class="{kind}" data-command="{command}" data-name="{escape(name)}">'
        f"{escape(label)}</button>"
    )


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


def gib(size: float) -> str:
    """Bytes as text, in binary units."""
    for unit, least in (("GiB", GIB), ("MiB", 2**20)):
        if size >= 0.95 * least:
            shown = size / least
            return f"{shown:.0f} {unit}" if shown >= 100 else f"{shown:.1f} {unit}"
    return f"{size / 1024:.0f} KiB"
