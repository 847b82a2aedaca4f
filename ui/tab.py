"""A tab of the page: the base class of all tabs, and of what one open page shows of a tab."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.chat.assistant import Assistant
from app.errors import UNEXPECTED, AppError
from app.history.store import storable
from app.observable import Observable
from app.server.door import admit
from engine.errors import EngineError, InvalidRequest

Values = dict[str, Any]  # by region
# Counts an answer that a page starts, until the result is called; raises AppError at a limit.
Admit = Callable[[], Callable[[], None]]
Regions = Mapping[str, Any]  # the Gradio components that change, by name

# For every event: no spinner, not in Gradio's API, and no check of inputs, as there are none.
_QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}

log = logging.getLogger(__name__)


class Command(BaseModel):
    """What a page asks a tab to do; a tab with other fields declares a subclass."""

    model_config = ConfigDict(extra="forbid")

    command: str = Field(max_length=40)
    name: str = Field(default="", max_length=1000)  # of the model, file, ... that it is about

    @classmethod
    def read(cls, data: object) -> Self:
        """From JSON; raises InvalidRequest."""
        try:
            return cls.model_validate_json(str(data))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise InvalidRequest(f"{field}: {first['msg'].lower()}; reload the page") from error


def error_text(error: Exception) -> str:
    """The message of an expected error; any other is logged and only called unexpected."""
    if isinstance(error, (AppError, EngineError)):
        return str(error)
    log.error("a command of the page failed", exc_info=error)
    return UNEXPECTED


C = TypeVar("C", bound=Command)


class View(ABC, Generic[C]):
    """What one open page shows of a tab; runs the page's commands.

    Change ``source`` to send the page what is different. It may be shared by all pages.
    """

    def __init__(
        self,
        actions: Mapping[str, Callable[[C], Awaitable[None]]],
        source: Observable | None = None,
    ) -> None:
        self.source = source or Observable()
        self.done = 0  # commands so far
        self._actions = actions  # by the command's name

    @abstractmethod
    async def values(self) -> Values:
        """The contents of all regions; one that is missing stays as it is."""

    @abstractmethod
    def fail(self, message: str) -> None:
        """Show why the latest command failed."""

    @property
    def frame_seconds(self) -> float:
        """The least time between two updates."""
        return 0.0

    async def run(self, command: C) -> None:
        """Run one command; raises InvalidRequest for a command that does not exist."""
        if command.command not in self._actions:
            raise InvalidRequest(f"this page cannot do {command.command!r}; reload it")
        await self._actions[command.command](command)

    async def visit(self) -> None:
        """Read everything again: the person opened the tab."""

    async def receive(self, command: C) -> None:
        """Run a command and show how it ended."""
        await self.handle(self.run(command))

    async def handle(self, work: Awaitable[None]) -> None:
        """Do something and show an error where it fails."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the page's edge: shown in place, and logged
            self.fail(error_text(error))
        self.done += 1
        self.source.change()

    def close(self) -> None:
        """The page was closed."""

    def refuse(self, error: Exception) -> None:
        """Show what is wrong with a command that cannot be read."""
        self.fail(error_text(error))
        self.source.change()

    async def updates(self) -> AsyncGenerator[Values]:
        """The regions that changed, for as long as the page is open."""
        sent: Values = {}
        while True:
            seen, found = self.source.version, await self.values()
            now = {name: sendable(value) for name, value in found.items()}
            changed = {name: value for name, value in now.items() if sent.get(name) != value}
            sent |= changed
            if changed:
                yield changed
            await asyncio.sleep(self.frame_seconds)
            await self.source.changed(seen)


@dataclass(frozen=True, slots=True)
class Visitor:
    """One open page, and the name of the key that its browser logged in with."""

    page: str
    owner: str | None = None  # None: no key is asked for
    admit: Admit = field(default=lambda: lambda: None, compare=False)

    @classmethod
    def of(cls, request: gr.Request) -> Self:
        """Who sent a request."""
        assert request.request is not None  # it came from a browser
        begin = partial(admit, request.request.scope)
        return cls(str(request.session_hash), request.username, begin)


class Tab(ABC):
    """One tab: a subclass and its line in ``ui.page.TABS`` are all that a new tab needs.

    ``regions`` are the parts that change; the default layout puts one after the other.
    """

    name: ClassVar[str]
    regions: ClassVar[tuple[str, ...]] = ("body",)
    styles: ClassVar[tuple[str, ...]] = ()  # files in static/
    scripts: ClassVar[tuple[str, ...]] = ()
    commands: ClassVar[type[Command]] = Command
    at_start: ClassVar = False  # its updates begin with the page, not when the tab is first opened

    def __init__(self, assistant: Assistant) -> None:
        self.assistant = assistant
        self._views: dict[Visitor, View[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def view(self, visitor: Visitor) -> View[Any]:
        """What a new page shows of this tab."""

    def layout(self) -> Regions:
        """Lay the tab out in the Blocks that are open."""
        key = self.name.lower()
        with gr.Column(elem_id=key, elem_classes="screen"):
            return {name: self.region(name, f"{key}-{name}") for name in self.regions}

    def region(self, name: str, place: str) -> Any:
        """The component of one region, at ``place`` on the page."""
        return gr.HTML("", elem_id=place)

    def build(self, tab: gr.Tab, page: gr.Blocks) -> None:
        """Lay the tab out and connect it; one stream of updates for each page that opens it."""
        regions = self.layout()

        async def stream(request: gr.Request) -> AsyncGenerator[dict[Any, Any]]:
            visitor = Visitor.of(request)
            try:
                async with aclosing(self._view(visitor).updates()) as updates:
                    async for changed in updates:
                        yield {regions[name]: value for name, value in changed.items()}
            finally:
                self.close(visitor)

        async def visit(request: gr.Request) -> None:
            view = self._view(Visitor.of(request))
            self._start(view.handle(view.visit()))

        begin = page.load if self.at_start else tab.select
        outputs = list(regions.values())
        # first: Gradio's page starts the events of a click one after the other, and a stream never ends
        tab.select(visit, None, None, queue=False, **_QUIET)
        begin(stream, None, outputs, trigger_mode="once", concurrency_limit=None, **_QUIET)

    def post(self, visitor: Visitor, data: object) -> None:
        """Give a command of a page to its view."""
        view = self._view(visitor)
        try:
            command = self.commands.read(data)
        except InvalidRequest as error:
            view.refuse(error)
        else:
            self._start(view.receive(command))

    def close(self, visitor: Visitor) -> None:
        """The page was closed."""
        if visitor in self._views:
            self._views.pop(visitor).close()

    def _view(self, visitor: Visitor) -> View[Any]:
        if visitor not in self._views:
            self._views[visitor] = self.view(visitor)
        return self._views[visitor]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """In the background, to its end even if the page is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)  # or the loop would forget it
        task.add_done_callback(self._tasks.discard)


def sendable(value: object) -> object:
    """A value of a region; names of files may hold bytes that are no text, which no page can show."""
    return storable(value) if isinstance(value, str) else value


def connect(wire: gr.HTML, tabs: Mapping[str, Tab]) -> None:
    """Let the commands of all tabs arrive through one element of the page."""

    async def post(event: gr.EventData, request: gr.Request) -> None:
        if event.tab in tabs:
            tabs[event.tab].post(Visitor.of(request), event.command)

    # "once" would drop a click that comes before the last command has arrived
    wire.click(post, None, None, queue=False, trigger_mode="multiple", **_QUIET)
