"""The hardware: what was found, a plan for every model, and what other memory would change."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import gradio as gr

from app.chat.assistant import Assistant
from app.models.library.simulation import PUBLISHED, Memory, SimulatedPlans, published_plan, without
from app.setup import checks as machine
from app.setup.checks import MachineView
from engine.hardware.profile import HardwareProfile
from ui.hardware import machine as found
from ui.hardware import plans, sliders
from ui.widgets import WIRE, TabCommand, error_notice, sheet

_QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}
_INSTALLED = "Open one for every choice with its reason, and every byte."
_PUBLISHED = "By their published shapes: none of them need be here."


def build(assistant: Assistant) -> None:
    """Lay the tab out in the one that is open, and connect it."""
    tab = gr.context.Context.block
    assert isinstance(tab, gr.Tab)  # only called inside one
    screen = Screen(assistant)
    with gr.Column(elem_id="hardware", elem_classes="screen"):
        top = gr.HTML("", elem_id="hardware-found", js_on_load=WIRE)
        middle = gr.HTML("", elem_id="hardware-sliders", js_on_load=sliders.SLIDERS)
        rows = gr.HTML("", elem_id="hardware-plans")

    async def show() -> tuple[str, str, str]:
        return await asyncio.to_thread(screen.show)

    async def obey(event: gr.EventData) -> AsyncGenerator[str]:
        async for shown in screen.measured(event.asked):
            yield shown

    async def imagine(event: gr.EventData) -> str:
        return await asyncio.to_thread(screen.imagined, event.asked)

    tab.select(show, None, [top, middle, rows], **_QUIET)
    top.click(obey, None, top, **_QUIET)
    middle.click(imagine, None, rows, trigger_mode="always_last", **_QUIET)


class Screen:
    """What the tab shows, the same for every page."""

    def __init__(self, assistant: Assistant) -> None:
        self._assistant = assistant
        self._shelf = SimulatedPlans({})  # read when the tab is opened, kept while sliders move

    def show(self) -> tuple[str, str, str]:
        """All three parts, looked up anew. HTML."""
        self._shelf = SimulatedPlans.read(self._assistant.settings)
        look = machine.look(self._assistant.settings)
        return (
            _found(look),
            sheet(sliders.section(look.profile)),
            self._plans(look.profile, sliders.Imagined()),
        )

    def imagined(self, written: object) -> str:
        """The plans on the machine that the sliders say. HTML."""
        try:
            asked = sliders.Imagined.read(written)
            return self._plans(machine.look(self._assistant.settings).profile, asked)
        except Exception as error:  # noqa: BLE001 - the page's edge: told in place, or raised again
            return sheet(error_notice(error))

    async def measured(self, written: object) -> AsyncGenerator[str]:
        """What was found, at once with a word that it is being measured, then with new rates."""
        settings = self._assistant.settings
        look = await asyncio.to_thread(machine.look, settings)
        try:
            TabCommand.read(written)
            yield _found(look, found.measuring())
            yield _found(await machine.measure(settings))
        except Exception as error:  # noqa: BLE001 - the page's edge: told in place, or raised again
            yield _found(look, error_notice(error))

    def _plans(self, profile: HardwareProfile, asked: sliders.Imagined) -> str:
        profile, memory = without(profile, self._assistant.plan), asked.memory
        shelf, here = self._shelf, Memory()
        installed = zip(shelf.plans(profile, memory), shelf.plans(profile, here), strict=True)
        published = (
            (published_plan(name, profile, memory), published_plan(name, profile, here))
            for name in PUBLISHED
        )
        return sheet(
            plans.section(
                "installed", "Models on this computer", _INSTALLED, installed, asked.open
            ),
            plans.section("published", "Well-known models", _PUBLISHED, published, asked.open),
        )


def _found(look: MachineView, says: str = "") -> str:
    return sheet(found.section(look, says))
