"""The page: what stands around the chat, and Gradio's own settings."""

from html import escape

import gradio as gr
from fastapi import FastAPI
from gradio.routes import mount_gradio_app

from app.assistant import Assistant
from engine.request import ModelFacts
from ui import chat
from ui.theme import ICON, SCRIPT, STYLE_SHEET, theme

_AT_ONCE = 4  # answers that stream to pages at the same time, as many as the engine has slots
_WAITING = 64  # events that may wait; beyond, a page is told that the server is busy

_MASTHEAD = """
<div class="mark" aria-hidden="true"><i></i><i></i><i></i></div>
<div><h1>Slipstream</h1><p>{name}<span class="size"> · {size}</span> · on this computer</p></div>
"""


def build(assistant: Assistant) -> gr.Blocks:
    """The whole page for one loaded model."""
    page = gr.Blocks(title="Slipstream", analytics_enabled=False, fill_height=True)
    with page, gr.Column(elem_id="page"):
        with gr.Row(elem_id="masthead"):
            gr.HTML(masthead(assistant.facts))
            fresh = gr.Button("New chat", elem_id="fresh", size="sm")
        chat.add(assistant, fresh)
    page.queue(max_size=_WAITING, api_open=False, default_concurrency_limit=_AT_ONCE)
    return page


def masthead(facts: ModelFacts) -> str:
    """The name, and the model in a few words: its name, its size, where it runs. HTML."""
    return _MASTHEAD.format(name=escape(facts.name), size=_size(facts.parameters))


def _size(parameters: int) -> str:
    for unit, name in ((10**9, "billion"), (10**6, "million")):
        if parameters >= unit:
            count = parameters / unit
            return (
                f"{count:.0f} {name} parameters"
                if count >= 10
                else f"{count:.1f} {name} parameters"
            )
    return f"{parameters:,} parameters"


def mount(app: FastAPI, page: gr.Blocks) -> None:
    """Serve ``page`` at ``/`` of ``app``; nothing it needs comes from another server."""
    mount_gradio_app(
        app,
        page,
        path="/",
        theme=theme(),
        css_paths=[STYLE_SHEET],
        head=f"<script>{SCRIPT.read_text(encoding='utf-8')}</script>",
        favicon_path=str(ICON),
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        pwa=False,
        allowed_paths=[],
        max_file_size="1mb",
    )
