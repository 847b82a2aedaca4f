"""Observable: a version that grows with every change, and a wait for the next change."""

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Observable:
    """A base class, or a member, of what several watchers follow in one event loop."""

    version: int = field(default=0, init=False)
    _change: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    def change(self) -> None:
        """Count a change and wake every watcher."""
        self.version += 1
        change, self._change = self._change, asyncio.Event()
        change.set()

    async def changed(self, seen: int) -> None:
        """Wait until the version is no longer ``seen``; returns at once where it already differs."""
        while self.version == seen:
            await self._change.wait()
