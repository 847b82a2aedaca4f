"""A page without a browser: a session over an assistant whose engine is a fake."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from html import unescape
from pathlib import Path
from typing import Any

from app.chat.assistant import Assistant
from app.text.chat_text import ChatText
from app.worker.child import Entry
from tests.app import fake_engine
from tests.app.assisted import TEXT, assisted
from ui.chat.actions import ACTIONS
from ui.chat.command import ChatCommand
from ui.chat.page_session import Pages, PageSession
from ui.tab import Visitor


class Page:
    """What a browser would show: regions are applied as they come."""

    def __init__(self, session: PageSession) -> None:
        self.session = session
        self.regions: dict[str, Any] = {}
        self._task = asyncio.create_task(self._show())
        self.do("hello")

    async def _show(self) -> None:
        async for changed in self.session.updates():
            self.regions |= changed

    def do(self, what: str, /, **more: Any) -> None:
        self.session.post(ChatCommand(command=what, **more))

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not (self.regions and true()):
                await asyncio.sleep(0.005)

    async def answered(self, count: int) -> None:
        await self.until(lambda: len(self.captions) == count and not self.state["busy"])

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self.session.close()

    @property
    def text(self) -> str:
        parts = (part for row in self.regions["rows"] for part in row["content"])
        return "".join(part.get("text") or part["value"] for part in parts)

    @property
    def captions(self) -> list[str]:
        return self.text.split('class="figures"')[1:]

    @property
    def state(self) -> dict[str, Any]:
        return json.loads(unescape(self.regions["state"].split('data-state="')[1].split('"')[0]))


@asynccontextmanager
async def opened(
    folder: Path, entry: Entry = fake_engine.parrot, *, text: ChatText = TEXT
) -> AsyncIterator[tuple[Page, Callable[[], Page], Assistant]]:
    async with assisted(folder, entry, text=text) as assistant:
        pages, made = Pages(assistant, ACTIONS), []

        def another() -> Page:
            made.append(Page(pages.open(Visitor(f"{len(made)}"))))
            return made[-1]

        yield another(), another, assistant
        for page in made:
            await page.close()
