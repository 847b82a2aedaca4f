"""The Compare tab: one prompt plain and in speed modes, and a benchmark of this machine."""

from dataclasses import replace
from typing import Any

import gradio as gr
from typing_extensions import override

from app.bench.compare.benchmark import Benchmark, BenchmarkOptions
from app.bench.compare.race import Race
from app.bench.compare.service import BenchmarkService
from app.chat.assistant import Assistant
from ui.chat import markdown
from ui.compare import benchmark, race
from ui.compare.form import CompareCommand, form
from ui.tab import Tab, Values, View, Visitor
from ui.widgets import button, note, notice

FRAME_SECONDS = 0.1  # the least time between two updates, however fast the tokens come
_NO_MODEL = (
    "Another engine answers now. Choose a model of this machine in the chat to compare with."
)
_OF_BENCHMARKS = ("benchmark", "open", "remove")


class CompareTab(Tab):
    """One BenchmarkService for all pages; a measurement continues when a page is closed."""

    name = "Compare"
    regions = (
        "form",
        "act",
        "status",
        "lanes",
        "answers",
        "verdict",
        "bench",
        "measure",
        "progress",
        "saved",
    )
    styles = ("compare.css",)
    scripts = ("compare.js",)
    commands = CompareCommand

    def __init__(self, assistant: Assistant) -> None:
        super().__init__(assistant)
        self._service = BenchmarkService(assistant)
        assistant.current.on_switch.append(self._service.change)

    @override
    def region(self, name: str, place: str) -> Any:
        if name == "answers":
            return gr.Markdown("", elem_id=place, latex_delimiters=markdown.DELIMITERS)
        return super().region(name, place)

    @override
    def view(self, visitor: Visitor) -> "ComparePage":
        return ComparePage(self._service, visitor.owner)


class ComparePage(View[CompareCommand]):
    """What one page shows of the measurements; the service, its source, is shared by all pages."""

    def __init__(self, service: BenchmarkService, owner: str | None) -> None:
        actions = {
            "race": self._race,
            "benchmark": self._benchmark,
            "stop": self._stop,
            "open": self._open,
            "remove": self._remove,
        }
        super().__init__(actions, service)
        self._service, self._owner = service, owner
        self._kept = service.kept
        self._open_name = ""  # of the saved benchmark that is open
        self._error = ""  # of the latest command
        self._latest = ""  # the latest command
        self._form = ("", "")  # the model, and its form: what a person typed in it stays

    @property
    @override
    def frame_seconds(self) -> float:
        return FRAME_SECONDS

    @override
    async def values(self) -> Values:
        service = self._service
        if service.kept is not self._kept:
            self._kept = service.kept
            self._open_name = service.kept.name if service.kept else self._open_name
        racing, measuring, waiting = service.racing, service.measuring, service.waiting
        shown = self._own_race
        measured = benchmark.progress(service.benchmark, waiting=waiting) if measuring else ""
        return {
            "form": self._current_form(),
            "act": self._row("Race", "race", running=racing),
            "status": race.status(shown, busy=racing, waiting=waiting),
            "lanes": race.lanes(shown, busy=racing),
            "answers": race.answers(shown),
            "verdict": race.verdict(shown),
            "bench": benchmark.INTRODUCTION,
            "measure": self._row("Benchmark my machine", "benchmark", running=measuring),
            "progress": measured,
            "saved": benchmark.saved(service.saved, self._open_name),
        }

    @override
    async def visit(self) -> None:
        await self._service.read_saved()

    @override
    async def run(self, command: CompareCommand) -> None:
        self._error, self._latest = "", command.command
        await super().run(command)

    @override
    def fail(self, message: str) -> None:
        self._error = message

    async def _race(self, command: CompareCommand) -> None:
        self._service.start_race(replace(command.race, owner=self._owner))

    async def _benchmark(self, command: CompareCommand) -> None:
        self._service.start_benchmark(BenchmarkOptions(command.size))

    async def _stop(self, _: CompareCommand) -> None:
        self._service.cancel()

    async def _open(self, command: CompareCommand) -> None:
        self._open_name = command.name

    async def _remove(self, command: CompareCommand) -> None:
        await self._service.remove(command.name)

    @property
    def _own_race(self) -> Race | None:
        """The latest, unless another key's prompt is in it."""
        latest = self._service.race
        hidden = latest is not None and self._owner not in (None, latest.options.owner)
        return None if hidden else latest

    def _current_form(self) -> str:
        local = self._service.assistant.current.local
        if local is None:
            return note(_NO_MODEL)
        model = local.entry.name
        if self._form[0] != model:
            latest = self._own_race
            known = latest.options if latest is not None and latest.model == model else None
            self._form = (model, form(local.facts, self._rivals(model), known))
        return self._form[1]

    def _rivals(self, model: str) -> list[str]:
        models = self._service.assistant.models()
        return [one.name for one in models if one.visible and one.usable and one.name != model]

    def _row(self, label: str, command: str, *, running: bool) -> str:
        """A button that starts or stops; ``done`` makes the HTML new, which enables it again."""
        bench = command == "benchmark"
        disabled = " disabled" if self._service.busy else ""
        kind = "soft" if bench else "primary"
        start = f'<button type="button" class="{kind}" data-command="{command}"{disabled}>{label}</button>'
        shown = button("Stop", "stop", kind="soft") if running else start
        return f'<div class="row" data-done="{self.done}">{shown}</div>{self._problem(bench=bench)}'

    def _problem(self, *, bench: bool) -> str:
        """What failed, next to the button of the race or of the benchmark."""
        if self._error and (self._latest in _OF_BENCHMARKS) == bench:
            return notice(self._error, alarm=True)
        latest = (self._service.latest is Benchmark) == bench
        return notice(self._service.problem) if latest and self._service.problem else ""
