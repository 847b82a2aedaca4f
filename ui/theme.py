"""How the page looks: system fonts, one accent, light and dark."""

from pathlib import Path

import gradio as gr

_HERE = Path(__file__).resolve().parent
STYLE_SHEET = _HERE / "page.css"
SCRIPT = _HERE / "page.js"
ICON = _HERE / "icon.svg"

_SANS = ("ui-sans-serif", "system-ui", "sans-serif")
_MONO = ("ui-monospace", "monospace")


def theme() -> gr.themes.Base:
    """Gradio's plainest theme without web fonts; ``page.css`` does the rest."""
    return gr.themes.Base(font=_SANS, font_mono=_MONO, radius_size="lg")
