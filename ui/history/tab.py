"""The history: how drafting fared, what the next answer starts from, care for the database."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import gradio as gr

from app.chat.assistant import Assistant
from app.history.store import History
from engine.errors import InvalidRequest
from ui.history import charts as figures
from ui.history import database
from ui.history import priors as beliefs
from ui.widgets import WIRE, TabCommand, error_notice, notice, sheet

_QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}


def build(assistant: Assistant) -> None:
    """Lay the tab out in the one that is open, and connect it."""
    tab = gr.context.Context.block
    assert isinstance(tab, gr.Tab)  # only called inside one
    with gr.Column(elem_id="history", elem_classes="screen"):
        body = gr.HTML("", elem_id="history-body", js_on_load=WIRE)

    async def show() -> str:
        return await asyncio.to_thread(screen, assistant.history)

    async def obey(event: gr.EventData) -> AsyncGenerator[str]:
        yield await asyncio.to_thread(_obey, assistant.history, event.asked)

    tab.select(show, None, body, **_QUIET)
    body.click(obey, None, body, concurrency_limit=None, **_QUIET)


def screen(history: History, model: str = "", says: str = "") -> str:
    """The whole tab; figures of one model, or of all. HTML."""
    cells = history.figures.cells()
    if not cells:
        return sheet(figures.nothing(), database.section(history, says))
    seen = [(one, history.measurements.priors(one)) for one in history.figures.seen()]
    return sheet(
        figures.section(cells, model), beliefs.section(seen), database.section(history, says)
    )


def _obey(history: History, written: object) -> str:
    model = ""
    try:
        asked = TabCommand.read(written)
        model = asked.name if asked.ask == "model" else ""
        says = _done(history, asked)
    except Exception as error:  # noqa: BLE001 - the page's edge: told in place, or raised again
        says = error_notice(error)
    return screen(history, model, says)


def _done(history: History, asked: TabCommand) -> str:
    """What was done, as HTML."""
    if asked.ask == "model":
        return ""
    if asked.ask == "forget":
        gone = history.measurements.forget(asked.name or None)
        answers = "1 answer" if gone.replies == 1 else f"{gone.replies:,} answers"
        return notice(f"The figures of {answers} are forgotten; conversations are as they were")
    if asked.ask == "backup":
        return database.backed_up(history.upkeep.back_up())
    if asked.ask == "check":
        return database.checked(history.upkeep.faults())
    raise InvalidRequest(f"this page cannot do {asked.ask!r}; reload it")
