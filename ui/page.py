"""The page: its name, its tabs, and Gradio's own settings."""

import gradio as gr
from fastapi import FastAPI
from gradio.routes import mount_gradio_app

from app.chat.assistant import Assistant
from ui.gradio_queue import WaitingQueue
from ui.icons import icon
from ui.shortcuts import help_sheet
from ui.tabs import TABS
from ui.theme import ICON, script, style_sheets, theme

_MASTHEAD = f"""
<div class="mark" aria-hidden="true"><i></i><i></i><i></i></div><h1>Slipstream</h1>
<span class="push"></span>
<button type="button" class="act" data-do="theme" aria-label="Dark or light">{icon("moon")}</button>
<button type="button" class="act" data-do="help" aria-label="Keyboard shortcuts">{icon("keys")}</button>
"""


def build(assistant: Assistant) -> gr.Blocks:
    """The whole page."""
    page = gr.Blocks(title="Slipstream", analytics_enabled=False, fill_height=True)
    with page, gr.Column(elem_id="page"):
        gr.HTML(_MASTHEAD, elem_id="masthead")
        with gr.Tabs(elem_id="tabs", elem_classes="" if len(TABS) > 1 else "single"):
            for tab in TABS:
                with gr.Tab(tab.name, id=tab.name.lower()):
                    tab.build(assistant)
        gr.HTML(help_sheet(), elem_id="sheets")
    page.queue(api_open=False)
    page._queue = WaitingQueue(page)  # noqa: SLF001 - Gradio has no setting for it
    return page


def mount(app: FastAPI, page: gr.Blocks) -> None:
    """Serve ``page`` at ``/`` of ``app``; nothing it needs comes from another server."""
    mount_gradio_app(
        app,
        page,
        path="/",
        theme=theme(),
        css_paths=style_sheets(),
        head=f"<script>{script()}</script>",
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
