"""The models: those that are here, the best for this machine, and every one that can be had."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import gradio as gr

from app.chat.assistant import Assistant
from app.model_manager import ModelManager
from ui.models import available as models_list
from ui.models.page_state import ModelsPage
from ui.widgets import TabCommand

# Clicks and forms of the whole tab go up through one element; the script also filters and counts.
_WIRE = "window.slipstream.models.connect((asked) => trigger('click', { asked }));"
_VISIT = TabCommand(ask="visit")
_QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}


def build(assistant: Assistant) -> None:
    """Lay the tab out in the one that is open, and connect it."""
    tab = gr.context.Context.block
    assert isinstance(tab, gr.Tab)  # only called inside one
    regions, wire = _lay_out()
    library = ModelManager(assistant)
    assistant.before_close(library.close)
    pages: dict[str, ModelsPage] = {}
    doing: set[asyncio.Task[None]] = set()

    def page(request: gr.Request) -> ModelsPage:
        return pages.setdefault(str(request.session_hash), ModelsPage(library))

    def start(request: gr.Request, asked: TabCommand) -> None:
        task = asyncio.create_task(page(request).obey(asked))
        doing.add(task)  # it goes on when the page is closed
        task.add_done_callback(doing.discard)

    async def views(request: gr.Request) -> AsyncGenerator[dict[Any, Any]]:
        start(request, _VISIT)
        try:
            async with aclosing(page(request).views()) as changes:
                async for changed in changes:
                    yield {regions[name]: value for name, value in changed.items()}
        finally:
            pages.pop(str(request.session_hash), None)

    async def visit(request: gr.Request) -> None:
        start(request, _VISIT)

    async def obey(event: gr.EventData, request: gr.Request) -> None:
        start(request, TabCommand.read(event.asked))

    outputs = list(regions.values())
    # One stream for as long as the page is open, begun once; coming back reads everything anew.
    tab.select(views, None, outputs, concurrency_limit=None, trigger_mode="once", **_QUIET)
    tab.select(visit, None, None, queue=False, **_QUIET)
    wire.click(obey, None, None, queue=False, **_QUIET)


def _lay_out() -> tuple[dict[str, gr.HTML], gr.HTML]:
    regions: dict[str, gr.HTML] = {}
    with gr.Column(elem_id="models", elem_classes="screen"):
        with gr.Column(elem_classes="sheet"):
            for name in ("best", "here", "ways"):
                regions[name] = gr.HTML("", elem_id=f"models-{name}")
            gr.HTML(models_list.FIND, elem_id="models-find")
            for name in ("list", "hub"):
                regions[name] = gr.HTML("", elem_id=f"models-{name}")
        for name in ("tray", "state"):
            regions[name] = gr.HTML("", elem_id=f"models-{name}")
        wire = gr.HTML("", elem_id="models-wire", js_on_load=_WIRE)
    return regions, wire
