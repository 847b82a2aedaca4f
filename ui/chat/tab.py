"""The chat: conversations, messages, an input, settings."""

from typing import Any

import gradio as gr
from typing_extensions import override

from app.chat.assistant import Assistant
from ui.chat import composer, markdown
from ui.chat import settings_panel as panel
from ui.chat.actions import ACTIONS
from ui.chat.command import ChatCommand
from ui.chat.page_session import Pages, PageSession
from ui.tab import Regions, Tab, Visitor
from ui.widgets import icon

_MENU_ACTIONS = (
    ("rename", "Rename"),
    ("pin", "Pin"),
    ("export-markdown", "Export as Markdown"),
    ("export-json", "Export as JSON"),
    ("delete", "Delete"),
)
_MENU = f"""
<div id="menu" popover role="dialog" aria-label="This conversation"><div id="menu-acts">{
    "".join(
        f'<button type="button" data-list="{do}">{label}</button>' for do, label in _MENU_ACTIONS
    )
}</div><div id="renaming" class="row" hidden><input id="new-title" aria-label="New title" maxlength="200">
<button type="button" class="quiet" data-list="save">Save</button></div></div>
"""
_SIDE_HEAD = f"""
<div class="row"><button type="button" id="new" class="wide" data-do="new">{icon("plus")}New chat</button>
<button type="button" class="act narrow-only" data-do="side" aria-label="Close the list">{icon("cross")}</button></div>
<input id="search" type="search" placeholder="Search" aria-label="Search conversations">
"""
_SIDE_FOOT = f"""
<button type="button" class="quiet" data-do="import">Import a conversation</button>
<input id="import-file" type="file" accept=".json,.md" hidden aria-label="A conversation to import">
{_MENU}"""
_TOP = f"""
<button type="button" class="act narrow-only" data-do="side" aria-label="Conversations">{icon("menu")}</button>
<p id="title"></p>
<button type="button" class="act" data-do="panel" aria-label="Settings" title="Settings">{icon("sliders")}</button>
"""


class ChatTab(Tab):
    """The chat; its pages also see what the others change."""

    name = "Chat"
    styles = ("chat.css", "messages.css")
    scripts = ("chat.js", "list.js", "overlay.js")
    commands = ChatCommand
    at_start = True

    def __init__(self, assistant: Assistant) -> None:
        super().__init__(assistant)
        self._pages = Pages(assistant, ACTIONS)

    @override
    def view(self, visitor: Visitor) -> PageSession:
        return self._pages.open(visitor)

    @override
    def layout(self) -> Regions:
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
        return regions


def _rows() -> gr.Chatbot:
    return gr.Chatbot(
        elem_id="rows",
        label="Conversation",
        show_label=False,
        container=False,
        layout="panel",
        height="auto",
        buttons=[],  # the row under an answer has one that copies its source
        sanitize_html=True,
        allow_tags=False,
        group_consecutive_messages=False,
        feedback_options=None,
        latex_delimiters=markdown.DELIMITERS,
        placeholder=" ",
        autoscroll=False,  # chat.js follows the end, and stops when a person scrolls
    )
