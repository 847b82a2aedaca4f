"""The History tab: how drafting performed, what the next answer starts from, the database."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from typing_extensions import override

from app.history.store import History
from app.models.downloads.partial_file import shown_bytes
from app.server.backups import ROUTE
from ui.history import charts, priors
from ui.tab import Command, Tab, Values, View, Visitor
from ui.widgets import button, counted, notice, sheet


class HistoryTab(Tab):
    """Read when it is opened and after each command."""

    name = "History"
    styles = ("history.css",)

    @override
    def view(self, visitor: Visitor) -> "HistoryPage":
        return HistoryPage(self.assistant.history, visitor.owner)


class HistoryPage(View[Command]):
    """What one page shows: the figures of one model, or of all."""

    def __init__(self, history: History, owner: str | None) -> None:
        """An ``owner`` of a key has no use of the database, which holds what every key made."""
        actions: dict[str, Callable[[Command], Awaitable[None]]] = {
            "model": self._choose,
            "forget": self._forget,
        }
        if owner is None:
            actions |= {"backup": self._back_up, "check": self._check}
        super().__init__(actions)
        self._history, self._owner = history, owner
        self._model = ""  # all models
        self._message = ""  # HTML
        self._body = ""  # HTML

    @override
    async def values(self) -> Values:
        return {"body": self._body}

    @override
    async def visit(self) -> None:
        self._body = await asyncio.to_thread(self._read)

    @override
    async def run(self, command: Command) -> None:
        self._model = self._message = ""
        await super().run(command)
        await self.visit()

    @override
    def fail(self, message: str) -> None:
        self._message = notice(message, alarm=True)
        self._body = self._read()

    async def _choose(self, command: Command) -> None:
        self._model = command.name

    async def _forget(self, command: Command) -> None:
        gone = await asyncio.to_thread(self._history.measurements.forget, command.name or None)
        answers = counted(gone.replies, "answer")
        self._message = notice(f"The figures of {answers} are deleted; conversations are kept")

    async def _back_up(self, _: Command) -> None:
        self._message = _backed_up(await asyncio.to_thread(self._history.upkeep.back_up))

    async def _check(self, _: Command) -> None:
        self._message = _checked(await asyncio.to_thread(self._history.upkeep.faults))

    def _read(self) -> str:
        history = self._history
        cells = history.figures.cells()
        database = _database(history, self._message) if self._owner is None else self._message
        if not cells:
            return sheet(charts.nothing(), database)
        known = [(one, history.measurements.priors(one)) for one in history.figures.seen()]
        return sheet(charts.section(cells, self._model), priors.section(known), database)


def _database(history: History, message: str) -> str:
    """Size, buttons, and the result of the last command. HTML."""
    size = history.upkeep.size()
    holds = (
        counted(size.conversations, "conversation"),
        counted(size.messages, "message"),
        counted(size.replies, "measured answer"),
    )
    return (
        '<section aria-labelledby="database"><h2 id="database">Database</h2>'
        f"<p>{shown_bytes(size.bytes)}: {', '.join(holds)}.</p>"
        f'<p class="note path">{escape(str(history.upkeep.path))}</p>'
        f'<div class="row">{button("Back up", "backup", kind="soft")}'
        f"{button('Check integrity', 'check', kind='soft')}</div>{message}</section>"
    )


def _backed_up(made: Path) -> str:
    """Where the copy is, and a link that downloads it. HTML."""
    link = (
        f' <a href="{ROUTE}/{quote(made.name)}" download="{escape(made.name)}">'
        f"Download {escape(made.name)}</a>"
    )
    return notice(
        f"{shown_bytes(made.stat().st_size)} were copied to {made}, and the copy is sound",
        more=link,
    )


def _checked(faults: Sequence[str]) -> str:
    """The result of the check. HTML."""
    if not faults:
        return notice("The whole database was read: it is sound")
    more = "".join(f"<br>{escape(fault)}" for fault in faults)
    text = (
        f"the database has {counted(len(faults), 'fault')}; back it up, then start with a new one"
    )
    return notice(text, alarm=True, more=more)
