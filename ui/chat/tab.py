"""The chat: conversations, messages, an input, settings."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.chat.assistant import Assistant
from engine.errors import InvalidRequest
from ui.chat import composer, sidebar
from ui.chat import settings_panel as panel
from ui.chat.actions import ACTIONS
from ui.chat.command import Command
from ui.chat.page_session import Pages
from ui.icons import icon

# Commands go up through an event of this element; a page says hello once it is connected.
_WIRE = """
window.slipstream.connect((command) => trigger('click', { command }));
"""
_SIDE_HEAD = f"""
<div class="row"><button type="button" id="new" class="wide" data-do="new">{icon("plus")}New chat</button>
<button type="button" class="act narrow-only" data-do="side" aria-label="Close the list">{icon("cross")}</button></div>
<input id="search" type="search" placeholder="Search" aria-label="Search conversations">
"""
_SIDE_FOOT = f"""
<button type="button" class="quiet" data-do="import">Import a conversation</button>
<input id="import-file" type="file" accept=".json,.md" hidden aria-label="A conversation to import">
{sidebar.MENU}"""
_TOP = f"""
<button type="button" class="act narrow-only" data-do="side" aria-label="Conversations">{icon("menu")}</button>
<p id="title"></p>
<button type="button" class="act" data-do="panel" aria-label="Settings" title="Settings">{icon("sliders")}</button>
"""
_LATEX: list[dict[str, str | bool]] = [
    {"left": "$$", "right": "$$", "display": True},
    {"left": "\\[", "right": "\\]", "display": True},
    {"left": "\\(", "right": "\\)", "display": False},
]


@dataclass(frozen=True, slots=True)
class Layout:
    """The components: where commands come from, and by name the regions that change."""

    wire: gr.HTML
    regions: dict[str, Any]


def build(assistant: Assistant) -> None:
    """Lay the chat out in the current Blocks, and connect it."""
    layout = _lay_out()
    pages = Pages(assistant, ACTIONS)
    quiet: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "preprocess": False,
    }

    async def views(request: gr.Request) -> AsyncGenerator[dict[Any, Any]]:
        key = str(request.session_hash)
        try:
            async with aclosing(pages.session(key).views()) as changes:
                async for changed in changes:
                    yield {layout.regions[name]: value for name, value in changed.items()}
        finally:
            pages.close(key)

    async def obey(event: gr.EventData, request: gr.Request) -> None:
        session = pages.session(str(request.session_hash))
        try:
            session.post(Command.read(event.command))
        except InvalidRequest as error:
            session.complain(error)

    outputs = list(layout.regions.values())
    page = gr.context.Context.root_block
    assert page is not None  # only called inside one
    page.load(views, None, outputs, concurrency_limit=None, **quiet)
    # once would drop what is clicked before the last command has arrived
    layout.wire.click(obey, None, None, queue=False, trigger_mode="multiple", **quiet)


def _lay_out() -> Layout:
    regions: dict[str, Any] = {}
    with gr.Row(elem_id="chat"):
        with gr.Column(elem_id="side"):
            gr.HTML(_SIDE_HEAD, elem_id="side-head")
            regions["side"] = gr.HTML(elem_id="side-list")
            gr.HTML(_SIDE_FOOT, elem_id="side-foot")
        with gr.Column(elem_id="talk"):
            gr.HTML(_TOP, elem_id="top")
            regions["welcome"] = gr.HTML(elem_id="welcome")
            regions["rows"] = _rows()
            regions["notice"] = gr.HTML(elem_id="notice")
            with gr.Column(elem_id="composer"):
                regions["chips"] = gr.HTML(elem_id="chips")
                gr.HTML(composer.INPUT, elem_id="input")
            with gr.Row(elem_id="foot"):
                regions["pickers"] = gr.HTML(elem_id="pickers")
                regions["meter"] = gr.HTML(elem_id="meter")
        with gr.Column(elem_id="panel"):
            gr.HTML(panel.HEAD, elem_id="panel-head")
            regions["presets"] = gr.HTML(elem_id="presets")
            gr.HTML(panel.panel(), elem_id="panel-fields")
    regions["state"] = gr.HTML(elem_id="state")
    wire = gr.HTML("", elem_id="wire", js_on_load=_WIRE)
    return Layout(wire, regions)


def _rows() -> gr.Chatbot:
    return gr.Chatbot(
        elem_id="rows",
        label="Conversation",
        show_label=False,
        container=False,
        layout="panel",
        height="auto",
        buttons=[],  # a caption has one that copies the answer as it was written
        sanitize_html=True,
        allow_tags=False,
        reasoning_tags=[("<think>", "</think>")],
        group_consecutive_messages=False,
        feedback_options=None,
        latex_delimiters=_LATEX,
        placeholder=" ",
        autoscroll=False,  # the page's script follows the end, and lets go when a person scrolls
    )
