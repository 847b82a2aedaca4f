"""Compare: one prompt plain and in speed modes, and a benchmark of this machine."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.bench.compare.benchmark import Benchmark, BenchmarkOptions
from app.bench.compare.service import BenchmarkService
from app.chat.assistant import Assistant
from app.errors import AppError
from engine.errors import EngineError, InvalidRequest
from ui.compare import benchmark as compare_bench
from ui.compare import race as compare_stage
from ui.compare.form import Wish, form
from ui.widgets import button, notice

log = logging.getLogger(__name__)

FRAME_SECONDS = 0.1  # the screen is redrawn at most so often, however fast the tokens come
REGIONS = ("form", "act", "status", "lanes", "verdict", "bench", "measure", "progress", "saved")

_WIRE = "window.slipstream.compare.connect((asked) => trigger('click', { asked }));"
_UNEXPECTED = "something unexpected failed; the log says more, please try again"
_OF_BENCHMARKS = ("benchmark", "open", "remove")
_QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}

Values = dict[str, str]  # by region


def build(assistant: Assistant) -> None:
    """Lay the tab out in the one that is open, and connect it."""
    tab = gr.context.Context.block
    assert isinstance(tab, gr.Tab)  # only called inside one
    laboratory = BenchmarkService(assistant)
    assistant.when_switching(laboratory.change)
    screens: dict[str, Screen] = {}
    with gr.Column(elem_id="compare", elem_classes="screen"):
        regions = {name: gr.HTML("", elem_id=f"compare-{name}") for name in REGIONS}
    wire = gr.HTML("", elem_id="compare-wire", js_on_load=_WIRE)

    def screen(request: gr.Request) -> Screen:
        return screens.setdefault(str(request.session_hash), Screen(laboratory))

    async def watch(request: gr.Request) -> AsyncGenerator[dict[Any, str]]:
        await laboratory.read_saved()
        try:
            async with aclosing(screen(request).views()) as views:
                async for changed in views:
                    yield {regions[name]: value for name, value in changed.items()}
        finally:
            screens.pop(str(request.session_hash), None)

    async def look_again() -> None:
        await laboratory.read_saved()  # which also tells that another model may be loaded

    async def obey(event: gr.EventData, request: gr.Request) -> None:
        await screen(request).obey(event.asked)

    shown: dict[str, Any] = {"trigger_mode": "once", "concurrency_limit": None}
    tab.select(watch, None, list(regions.values()), **shown, **_QUIET)
    tab.select(look_again, None, None, queue=False, **_QUIET)
    wire.click(obey, None, None, queue=False, **_QUIET)


@dataclass(slots=True)
class Screen:
    """What one page shows of the laboratory."""

    laboratory: BenchmarkService
    opened: str = ""  # the saved benchmark that is looked at
    says: str = ""  # what the latest click could not do
    asked: str = ""  # by that click
    clicks: int = 0
    _form: tuple[str, str] = ("", "")  # the model, and its form: what is typed there stays

    async def views(self) -> AsyncGenerator[Values]:
        """The regions that changed, for as long as the page is open."""
        sent: Values = {}
        laboratory = self.laboratory
        kept = laboratory.kept
        while True:
            version = laboratory.version
            if laboratory.kept is not kept:
                kept = laboratory.kept
                self.opened = kept.name if kept else self.opened
            now = self.values()
            changed = {name: value for name, value in now.items() if sent.get(name) != value}
            sent = now
            if changed:
                yield changed
            await asyncio.sleep(FRAME_SECONDS)
            await laboratory.changed(version)

    def values(self) -> Values:
        """Every region."""
        laboratory = self.laboratory
        race, benchmark = laboratory.race, laboratory.benchmark
        racing, measuring = laboratory.racing, laboratory.measuring
        waiting = laboratory.waiting
        return {
            "form": self._asked(),
            "act": self._row("Race", "race", running=racing, bench=False),
            "status": compare_stage.status(race, busy=racing, waiting=waiting),
            "lanes": compare_stage.lanes(race, busy=racing),
            "verdict": compare_stage.verdict(race),
            "bench": compare_bench.INTRODUCTION,
            "measure": self._row(
                "Benchmark my machine", "benchmark", running=measuring, bench=True
            ),
            "progress": compare_bench.progress(benchmark, waiting=waiting) if measuring else "",
            "saved": compare_bench.saved(laboratory.saved, self.opened),
        }

    async def obey(self, written: object) -> None:
        """Do one thing; what is wrong with it is told in place."""
        self.clicks += 1
        self.says = ""
        try:
            wish = Wish.read(written)
            self.asked = wish.ask
            await self._do(wish)
        except (AppError, EngineError) as error:
            self.says = str(error)
        except Exception:
            log.exception("the compare tab could not do something")
            self.says = _UNEXPECTED
        self.laboratory.change()

    async def _do(self, wish: Wish) -> None:
        match wish.ask:
            case "race":
                self.laboratory.start_race(wish.race)
            case "benchmark":
                self.laboratory.start_benchmark(BenchmarkOptions(wish.size))
            case "stop":
                self.laboratory.cancel()
            case "open":
                self.opened = wish.name
            case "remove":
                await self.laboratory.remove(wish.name)
            case _:
                raise InvalidRequest(f"this page cannot do {wish.ask!r}; reload it")

    def _asked(self) -> str:
        model = self.laboratory.assistant.entry.name
        if self._form[0] != model:
            race = self.laboratory.race
            known = race.options if race is not None and race.model == model else None
            self._form = (model, form(self.laboratory.assistant.facts, self._rivals(model), known))
        return self._form[1]

    def _rivals(self, model: str) -> list[str]:
        models = self.laboratory.assistant.models()
        return [one.name for one in models if one.visible and one.folder and one.name != model]

    def _row(self, label: str, ask: str, *, running: bool, bench: bool) -> str:
        """Start or stop; ``clicks`` makes it new, so its button wakes up."""
        rest = " disabled" if self.laboratory.busy else ""
        kind = "soft" if bench else "primary"
        act = f'<button type="button" class="{kind}" data-ask="{ask}"{rest}>{label}</button>'
        if running:
            act = button("Stop", "stop", kind="soft")
        return f'<div class="row" data-click="{self.clicks}">{act}</div>{self._told(bench=bench)}'

    def _told(self, *, bench: bool) -> str:
        """What went wrong, beside what was asked: a race, or what belongs to benchmarks."""
        about = self.asked in _OF_BENCHMARKS
        if self.says and about == bench:
            return notice(self.says, alarm=True)
        broken = (self.laboratory.latest is Benchmark) == bench
        problem = self.laboratory.problem if broken else ""
        return notice(problem) if problem else ""
