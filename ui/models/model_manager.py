"""ModelManager: finds, downloads, imports, loads and deletes models; one for all open pages."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.chat.assistant import Assistant
from app.models.catalog import load_catalog
from app.models.downloads.job import ENDED, Snapshot, State
from app.models.downloads.manifest import manifests_for
from app.models.downloads.queue import Downloads, open_downloads, open_hub
from app.models.hub.client import keep_token, read_token
from app.models.hub.search import Found, search
from app.models.library.importing import Import, add_model, typed_path
from app.models.library.installed import (
    Inventory,
    Removed,
    installed_models,
    read_inventory,
    remove_model,
)
from app.models.library.repository_view import RepositoryView, inspect_repository
from app.observable import Observable
from app.placement.plans import context_costs
from engine.errors import InvalidRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gone:
    """What removing a model did; ``instead`` is the model that was loaded in its place."""

    removed: Removed
    instead: str | None


@dataclass(slots=True, eq=False)
class ModelManager(Observable):
    """Downloads continue when no page is open; the network is used only when a person asks for it."""

    assistant: Assistant
    shelf: Inventory | None = None  # as it was read last
    used: frozenset[str] = frozenset()  # names of the loaded model and of its draft
    loading: str = ""  # the model that is being loaded
    contexts: Sequence[
        tuple[int, int]
    ] = ()  # of the loaded model: tokens, and bytes that they take
    _downloads: Downloads | None = None
    _following: asyncio.Task[None] | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        """Tell how far a load is, wherever it was begun."""
        self.assistant.current.on_switch.append(self.change)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Every download of this process, and what earlier ones left unfinished."""
        return self._downloads.snapshots() if self._downloads is not None else ()

    async def visit(self) -> None:
        """A page opens the list of models: read everything again, drop finished downloads."""
        await self.refresh()  # first: a hub that cannot be used takes no list
        downloads = await self._queue()
        for seen in downloads.snapshots():
            downloads.forget(seen.name)
        self.change()
        await self.assistant.current.ask_engines()
        self.change()

    async def refresh(self) -> None:
        """Read which models are installed and which would fit this machine."""
        async with self._reading:  # one at a time, or an older result could replace a newer one
            settings, plan = self.assistant.settings, self.assistant.current.plan
            self.shelf = await asyncio.to_thread(read_inventory, settings, plan)
            self.used = await asyncio.to_thread(self._in_use)
            local = self.assistant.current.local
            self.contexts = await asyncio.to_thread(context_costs, local.spec) if local else ()
        self.change()

    async def search(self, words: str) -> tuple[Found, ...]:
        """Ask the hub; a repository that is named, or whose address is pasted, comes first.

        Raises HubError.
        """
        if not words.strip():
            raise InvalidRequest("write a name to search for")
        downloads = await self._queue()
        return await asyncio.to_thread(search, downloads.hub, words.strip())

    async def inspect_repository(self, repo: str) -> RepositoryView:
        """Ask the hub about one repository; raises HubError and its kinds."""
        downloads = await self._queue()
        settings, plan = self.assistant.settings, self.assistant.current.plan
        return await asyncio.to_thread(inspect_repository, settings, downloads.hub, repo, plan)

    async def get(self, name: str, files: tuple[str, ...] = ()) -> None:
        """Download a model and its draft, or a repository.

        Raises HubError, ModelUnusable for files that cannot run, DiskFull, SettingsError.
        """
        downloads = await self._queue()
        catalog = await asyncio.to_thread(load_catalog, self.assistant.settings)
        orders = await asyncio.to_thread(manifests_for, downloads.hub, catalog, name, files)
        await asyncio.to_thread(downloads.add, orders)
        self._follow()

    async def pause(self, name: str) -> None:
        """Stop a download and keep its partial file; raises DownloadFailed."""
        await asyncio.to_thread((await self._queue()).pause, name)
        self.change()

    async def resume(self, name: str) -> None:
        """Continue a download; raises DiskFull, DownloadFailed."""
        await asyncio.to_thread((await self._queue()).resume, name)
        self._follow()

    async def cancel(self, name: str) -> None:
        """Cancel a download and delete its partial file; raises DownloadFailed."""
        await asyncio.to_thread((await self._queue()).cancel, name)
        self.change()

    async def use(self, name: str, context: int | None = None, *, anyway: bool = False) -> None:
        """Load ``name``; if that fails, the previous model stays in use. See ``Assistant.switch``."""
        if self.loading:
            raise InvalidRequest(f"{self.loading} is being loaded; wait until it is ready")
        self.loading = name
        self.change()
        try:
            await self.assistant.switch(name, context, anyway=anyway)
        finally:
            self.loading = ""
            await self.refresh()

    async def remove(self, name: str) -> Gone:
        """Delete a model; if it is loaded, the bundled model is loaded in its place first."""
        settings, instead = self.assistant.settings, None
        here = await asyncio.to_thread(installed_models, settings)
        removable = any(one.entry.name == name and not one.bundled for one in here)
        if removable and name in await asyncio.to_thread(self._in_use):
            instead = next(one.entry.name for one in here if one.bundled and one.entry.visible)
            await self.use(instead)
        removed = await asyncio.to_thread(remove_model, settings, name)
        (await self._queue()).forget(name)
        await self.refresh()
        return Gone(removed, instead)

    async def add(self, path: str, name: str | None = None) -> str:
        """Import a model from a disk and return its name. Raises ModelUnusable, SettingsError."""
        if not path.strip():
            raise InvalidRequest("write the path of a folder or of a GGUF file")
        asked = Import(typed_path(path), name, exact=False)
        added = await asyncio.to_thread(add_model, self.assistant.settings, asked)
        await self.refresh()
        return added

    async def keep_token(self, token: str) -> None:
        """Store or delete the token, and retry downloads that failed without it."""
        settings = self.assistant.settings
        await asyncio.to_thread(keep_token, settings, token)
        downloads = await self._queue()
        downloads.hub.use_token(read_token(settings))
        for seen in downloads.snapshots():
            if token.strip() and seen.gated and seen.state is State.FAILED:
                await self.resume(seen.name)
        await self.refresh()

    async def close(self) -> None:
        """Stop every download; partial files are kept for the next start."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if self._downloads is not None:
            await asyncio.to_thread(self._downloads.close)

    def _in_use(self) -> frozenset[str]:
        local = self.assistant.current.local
        used = (local.spec.folder, local.spec.draft_folder) if local else ()
        places = [Path(place) for place in used if place]
        return frozenset(
            entry.name
            for entry in self.assistant.models()
            if entry.folder is not None
            and any(place.is_relative_to(entry.folder) for place in places)
        )

    async def _queue(self) -> Downloads:
        if self._downloads is None:
            settings = self.assistant.settings
            hub = await asyncio.to_thread(open_hub, settings)
            if self._downloads is None:
                self._downloads = open_downloads(settings, hub)
            else:  # another page opened it meanwhile
                hub.close()
        return self._downloads

    def _follow(self) -> None:
        """Report progress until every download has ended."""
        self.change()
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._report(), name="follow downloads")

    async def _report(self) -> None:
        downloads = await self._queue()
        finished = self._finished()
        while True:
            async for _ in downloads.follow():
                if self._finished() != finished:
                    finished = self._finished()
                    await self.refresh()
                self.change()
            if all(seen.state in ENDED for seen in downloads.snapshots()):
                return

    def _finished(self) -> frozenset[str]:
        return frozenset(seen.name for seen in self.snapshots() if seen.state is State.DONE)
