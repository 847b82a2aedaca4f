"""How the page looks and what runs in it: system fonts, one accent, light and dark."""

from pathlib import Path

import gradio as gr

_HERE = Path(__file__).resolve().parent / "static"
ICON = _HERE / "icon.svg"

_STYLES = ("page.css", "chat.css", "messages.css", "screen.css", "models.css", "compare.css")
_SCRIPTS = ("page.js", "chat.js", "list.js", "overlay.js", "models.js", "compare.js")
_SANS = ("ui-sans-serif", "system-ui", "sans-serif")
_MONO = ("ui-monospace", "monospace")


def theme() -> gr.themes.Base:
    """Gradio's plainest theme without web fonts; the style sheets do the rest."""
    return gr.themes.Base(font=_SANS, font_mono=_MONO, radius_size="lg")


def style_sheets() -> list[str | Path]:
    """In the order that they are read."""
    return [_HERE / name for name in _STYLES]


def script() -> str:
    """Everything that runs in the page."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
