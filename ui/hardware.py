"""The hardware: what was found, a plan for every model, and what other memory would change."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import gradio as gr

from app import machine
from app.assistant import Assistant
from app.machine import Look
from app.what_if import PUBLISHED, Memory, Shelf, published_plan, without
from engine.hardware.profile import HardwareProfile
from ui import hardware_found as found
from ui import hardware_plans as plans
from ui import hardware_sliders as sliders
from ui.screen import WIRE, Asked, sheet, told

_QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}
_HERE_NOTE = "Click one for every choice with its reason, and every byte."
_KNOWN_NOTE = "By their published shapes: nothing was downloaded."


def build(assistant: Assistant) -> None:
    """Lay the tab out in the one that is open, and connect it."""
    tab = gr.context.Context.block
    assert isinstance(tab, gr.Tab)  # only called inside one
    with gr.Column(elem_id="hardware", elem_classes="screen"):
        top = gr.HTML("", elem_id="hardware-found", js_on_load=WIRE)
        middle = gr.HTML("", elem_id="hardware-sliders", js_on_load=sliders.SLIDERS)
        rows = gr.HTML("", elem_id="hardware-plans")

    async def show() -> tuple[str, str, str]:
        return await asyncio.to_thread(_all, assistant)

    async def obey(event: gr.EventData) -> AsyncGenerator[str]:
        async for shown in _measured(assistant, event.asked):
            yield shown

    async def imagine(event: gr.EventData) -> str:
        return await asyncio.to_thread(_planned, assistant, event.asked)

    tab.select(show, None, [top, middle, rows], **_QUIET)
    top.click(obey, None, top, **_QUIET)
    middle.click(imagine, None, rows, trigger_mode="always_last", **_QUIET)


def _all(assistant: Assistant) -> tuple[str, str, str]:
    look = machine.look(assistant.settings)
    return (
        _found(look),
        sheet(sliders.section(look.profile)),
        screen(assistant, look.profile, sliders.Imagined()),
    )


def screen(assistant: Assistant, profile: HardwareProfile, asked: sliders.Imagined) -> str:
    """The plans of all models on the machine that is asked about. HTML."""
    profile, memory = without(profile, assistant.plan), asked.memory
    shelf = Shelf.read(assistant.settings)
    installed = [
        (one, here)
        for one, here in zip(
            shelf.plans(profile, memory), shelf.plans(profile, Memory()), strict=True
        )
    ]
    published = [
        (published_plan(name, profile, memory), published_plan(name, profile, Memory()))
        for name in PUBLISHED
    ]
    return sheet(
        plans.section("installed", "Models on this computer", _HERE_NOTE, installed, asked.open),
        plans.section("published", "Well-known models", _KNOWN_NOTE, published, asked.open),
    )


def _planned(assistant: Assistant, written: object) -> str:
    try:
        asked = sliders.Imagined.read(written)
        return screen(assistant, machine.look(assistant.settings).profile, asked)
    except Exception as error:  # noqa: BLE001 - the page's edge: told in place, or raised again
        return sheet(told(error))


async def _measured(assistant: Assistant, written: object) -> AsyncGenerator[str]:
    """What was found, at once with a word that it is being measured, then with new rates."""
    look = await asyncio.to_thread(machine.look, assistant.settings)
    try:
        Asked.read(written)
        yield _found(look, found.measuring())
        yield _found(await machine.measure(assistant.settings))
    except Exception as error:  # noqa: BLE001 - the page's edge: told in place, or raised again
        yield _found(look, told(error))


def _found(look: Look, says: str = "") -> str:
    return sheet(found.section(look, says))
