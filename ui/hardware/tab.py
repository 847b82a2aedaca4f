"""The Hardware tab: this machine, a plan for every model, and what other memory would change."""

import asyncio

from typing_extensions import override

from app.chat.assistant import Assistant
from app.models.library.simulation import PUBLISHED, Memory, SimulatedPlans, published_plan, without
from app.setup import checks
from app.setup.checks import MachineView
from engine.hardware.profile import HardwareProfile
from ui.hardware import machine, plans, sliders
from ui.hardware.sliders import HardwareCommand
from ui.tab import Tab, Values, View, Visitor
from ui.widgets import notice, sheet

_INSTALLED = "Open one to see every choice with its reason, and the bytes of each part."
_PUBLISHED = "From their published shapes; they need not be installed."


class HardwareTab(Tab):
    """Read when it is opened."""

    name = "Hardware"
    regions = ("found", "sliders", "plans")
    styles = ("hardware.css",)
    scripts = ("hardware.js",)
    commands = HardwareCommand

    @override
    def view(self, visitor: Visitor) -> "HardwarePage":
        return HardwarePage(self.assistant)


class HardwarePage(View[HardwareCommand]):
    """What one page shows; the sliders are drawn once, and keep their place."""

    def __init__(self, assistant: Assistant) -> None:
        super().__init__({"measure": self._measure, "plan": self._plan})
        self._assistant = assistant
        self._simulated = SimulatedPlans({})  # read when the tab is opened
        self._machine: MachineView | None = None
        self._values: Values = {}
        self._newest = 0  # plan, as the sliders may move while one is made

    @override
    async def values(self) -> Values:
        return dict(self._values)

    @override
    async def visit(self) -> None:
        await asyncio.to_thread(self._read)

    @override
    def fail(self, message: str) -> None:
        self._show_machine(notice(message, alarm=True))

    def _read(self) -> None:
        settings = self._assistant.settings
        self._simulated = SimulatedPlans.read(settings)
        self._machine = checks.look(settings)
        self._show_machine()
        profile = self._machine.profile
        self._values["sliders"] = sheet(sliders.section(profile))
        self._values["plans"] = self._plans(profile, HardwareCommand(command="plan"))

    async def _measure(self, _: HardwareCommand) -> None:
        self._show_machine(machine.measuring())
        self.source.change()
        self._machine = await checks.measure(self._assistant.settings)
        self._show_machine()

    async def _plan(self, command: HardwareCommand) -> None:
        self._newest = number = self._newest + 1
        profile = (await asyncio.to_thread(checks.look, self._assistant.settings)).profile
        made = await asyncio.to_thread(self._plans, profile, command)
        if number == self._newest:
            self._values["plans"] = made

    def _show_machine(self, message: str = "") -> None:
        if self._machine is not None:
            self._values["found"] = sheet(machine.section(self._machine, message))

    def _plans(self, profile: HardwareProfile, command: HardwareCommand) -> str:
        profile, memory = without(profile, self._assistant.current.plan), command.memory
        simulated, here = self._simulated, Memory()
        installed = zip(
            simulated.plans(profile, memory), simulated.plans(profile, here), strict=True
        )
        published = (
            (published_plan(name, profile, memory), published_plan(name, profile, here))
            for name in PUBLISHED
        )
        return sheet(
            plans.section(
                "installed", "Models on this computer", _INSTALLED, installed, command.open
            ),
            plans.section("published", "Well-known models", _PUBLISHED, published, command.open),
        )
