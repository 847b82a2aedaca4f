"""Which model answers: the one that is loaded here, or one that another engine runs."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.chat.answering_model import AnsweringModel
from app.chat.loaded_model import LoadedModel
from app.chat.loader import Loader
from app.chat.remote.engines import RemoteEngines
from app.chat.remote.model import RemoteModel
from app.errors import AppError, ModelNotLoaded
from app.models.catalog import CatalogEntry, load_catalog, resolve
from app.settings import Settings
from app.text.chat_text import ChatText
from engine.errors import EngineError
from engine.hardware.plan import Plan


@dataclass(slots=True)
class CurrentModel:
    """One model of this machine at most is in memory; it stays there while another engine answers."""

    settings: Settings
    loader: Loader
    engines: RemoteEngines
    before_unload: Callable[[], Awaitable[object]]  # ends what the loaded model is answering
    local: LoadedModel | None = None
    remote: RemoteModel | None = None  # chosen in place of the local one
    loading: str = ""  # the model that is being loaded
    # from a place that the catalogue does not know, loaded before: by name
    visited: dict[str, CatalogEntry] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while one is loaded
    # called whenever another model answers, or loading one goes on
    on_switch: list[Callable[[], object]] = field(default_factory=list)

    @property
    def answers(self) -> AnsweringModel:
        """The model that answers where none is named."""
        chosen = self.remote or self.local
        assert chosen is not None
        return chosen

    @property
    def plan(self) -> Plan | None:
        """Where the model in memory is placed, and why; None for models that fit anywhere."""
        return self.local.plan if self.local else None

    @property
    def away(self) -> str:
        """The engine elsewhere that answers, in words; empty where this one does."""
        return self.remote.away if self.remote else ""

    def named(self, name: str) -> AnsweringModel:
        """The model of that name: of another engine, or the one that is loaded. Raises UnknownModel."""
        if self.settings.engine_of(name) is not None:
            return self.engines.model(name)
        return self.local if name and self.local is not None else self.answers

    async def ready(self, name: str) -> AnsweringModel:
        """The same, after the load that may be running."""
        if (engine := self.settings.engine_of(name)) is not None:
            await self.engines.know(engine.name)
            return self.named(name)
        async with self.lock:
            return self.named(name)

    def here(self) -> LoadedModel:
        """The model in this machine's memory; raises ModelNotLoaded."""
        if self.local is None:
            raise ModelNotLoaded(
                "no model is loaded on this machine; choose one that is not another engine's"
            )
        return self.local

    def entries(self) -> list[CatalogEntry]:
        """Every model that can be named: of the catalogue in its order, then of other engines."""
        return [*load_catalog(self.settings), *self.engines.entries()]

    def served(self) -> list[CatalogEntry]:
        """Those that programs can ask now: what is loaded here, and other engines' models."""
        return [*([self.local.entry] if self.local else []), *self.engines.entries()]

    async def ask_engines(self) -> dict[str, str]:
        """Ask other engines for their models; returns why some did not list any, by engine."""
        await self.engines.refresh()
        return self.engines.problems

    async def switch(self, model: str, context: int | None = None, *, anyway: bool = False) -> None:
        """See ``Assistant.switch``."""
        if (engine := self.settings.engine_of(model)) is not None:
            await self.engines.know(engine.name)
            self.remote = self.engines.model(model)
            self._tell()
            return
        if self._loaded(model) and context is None:
            self.remote = None
            self._tell()
            return
        anyway, context = anyway or self.settings.load_anyway, context or self.settings.context
        settings = replace(self.settings, load_anyway=anyway, context=context)
        place = str(self.visited[model].folder) if model in self.visited else model
        resolve(settings, place)  # a wrong name changes nothing
        async with self.lock:
            self._set_loading(model)
            telling = asyncio.create_task(self.loader.tell(self._tell))
            try:
                await self._replace(settings, place)
            finally:
                telling.cancel()
                self._set_loading("")

    async def use_template(self, name: str) -> None:
        """See ``Assistant.use_template``."""
        async with self.lock:
            local = self.here()
            folder = local.spec.folder
            text = await asyncio.to_thread(ChatText.load, Path(folder), name)
            await asyncio.to_thread(self.loader.templates.choose, folder, name)
            self.local = replace(local, text=text, template=name)

    async def close(self) -> None:
        """End the engine's process, and all connections to others."""
        if self.local is not None:
            await self.local.worker.close()
        await self.engines.close()

    def _loaded(self, model: str) -> bool:
        """Whether this is in memory, and another engine answers at present."""
        return self.remote is not None and self.local is not None and self.local.entry.name == model

    async def _replace(self, settings: Settings, model: str) -> None:
        await self.before_unload()
        previous = self.local
        if previous is not None:
            if all(one.name != previous.entry.name for one in load_catalog(settings)):
                self.visited[previous.entry.name] = previous.entry
            await previous.worker.close()
        try:
            self.local = await LoadedModel.open(settings, model, loader=self.loader)
            self.remote = None
        except (AppError, EngineError):
            if previous is not None:
                self.local = await LoadedModel.load(
                    previous.entry, previous.spec, previous.plan, self.settings, self.loader
                )
            raise

    def _set_loading(self, model: str) -> None:
        self.loading = model
        self._tell()

    def _tell(self) -> None:
        for call in self.on_switch:
            call()
