"""What the tabs beside the chat share: buttons that ask the server, notices, bars, dialogs."""

import time
from collections.abc import Sequence
from html import escape

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import AppError
from engine.errors import EngineError, InvalidRequest

# A button with ``data-ask`` tells the server what and about which; it rests until that is done. What
# is drawn anew loses the focus, which goes back to the same control.
WIRE = """
let back = '', seen = '';
const drawn = () => element.querySelector('.sheet')?.dataset.drawn;
const ask = (from, name) => {
  const same = `[data-ask="${CSS.escape(from.dataset.ask)}"]`;
  back = from.dataset.name ? `${same}[data-name="${CSS.escape(from.dataset.name)}"]` : same;
  seen = drawn();
  trigger('click', { asked: JSON.stringify({ ask: from.dataset.ask, name }) });
};
element.addEventListener('click', ({ target }) => {
  const button = target.closest('button[data-ask]');
  if (!button) return;
  element.querySelectorAll('[popover]:popover-open').forEach((open) => open.hidePopover());
  button.disabled = true;
  ask(button, button.dataset.name ?? '');
});
element.addEventListener('change', ({ target }) => {
  if (target.dataset.ask) ask(target, target.value);
});
new MutationObserver(() => {
  if (!back || drawn() === seen) return;
  if (document.activeElement === document.body) element.querySelector(back)?.focus();
  back = '';
}).observe(element, { childList: true, subtree: true });
"""
GIB = 2**30


class TabCommand(BaseModel):
    """One thing that a tab should do; ``name`` is what it is about."""

    model_config = ConfigDict(extra="forbid")

    ask: str = Field(max_length=40)
    name: str = Field(default="", max_length=1000)

    @classmethod
    def read(cls, written: object) -> "TabCommand":
        """From JSON; raises InvalidRequest."""
        try:
            return cls.model_validate_json(str(written))
        except ValidationError as error:
            raise InvalidRequest("this page sent something unreadable; reload it") from error


def sheet(*sections: str) -> str:
    """A tab's content, never the same twice: only then does a page draw it, and its buttons, anew."""
    return f'<div class="sheet" data-drawn="{time.monotonic_ns()}">{"".join(sections)}</div>'


def error_notice(error: Exception) -> str:
    """An expected failure in its own words; raises anything else."""
    if not isinstance(error, (AppError, EngineError)):
        raise error
    return notice(str(error), alarm=True)


def notice(text: str, *, alarm: bool = False, more: str = "") -> str:
    """A line that says what was done; ``more`` is HTML behind it. HTML."""
    role, kind = ("alert", " alarm") if alarm else ("status", "")
    return f'<p class="told{kind}" role="{role}">{escape(sentence(text))}{more}</p>'


def sentence(text: str) -> str:
    """With a capital and a full stop, where it has none."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def button(label: str, ask: str, name: str = "", kind: str = "quiet") -> str:
    """A button that asks the server. HTML."""
    return (
        f'<button type="button" class="{kind}" data-ask="{ask}" data-name="{escape(name)}">'
        f"{escape(label)}</button>"
    )


def confirmed(key: str, label: str, question: str, act: str) -> str:
    """A button, and the dialog that it opens; ``act`` is the HTML of the button that does it."""
    return (
        f'<button type="button" class="quiet" popovertarget="{key}">{escape(label)}</button>'
        f'<div id="{key}" class="confirm" popover role="dialog" aria-labelledby="{key}-says">'
        f'<p id="{key}-says">{escape(question)}</p><div class="row">{act}'
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
    """Bytes as people read them."""
    for unit, least in (("GiB", GIB), ("MiB", 2**20)):
        if size >= 0.95 * least:
            shown = size / least
            return f"{shown:.0f} {unit}" if shown >= 100 else f"{shown:.1f} {unit}"
    return f"{size / 1024:.0f} KiB"
