"""All engines that are configured: their keys, and the models that they list."""

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from app.chat.remote.chunks import Listed
from app.chat.remote.model import RemoteModel, remote_entry
from app.environment import variable
from app.errors import AppError, SettingsError, UnknownModel
from app.models.catalog import CatalogEntry
from app.remote_engine import RemoteEngine
from engine.platform.toolchain import PIP

if TYPE_CHECKING:
    from app.chat.remote.connection import Connection

SERVICE = "slipstream"  # under which the keyring keeps keys
log = logging.getLogger(__name__)

FRESH_SECONDS = 20.0  # in which a list is not asked for again
MOST_MODELS = 500  # of one engine


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What is known of one engine."""

    name: str
    address: str
    models: tuple[str, ...]
    problem: str  # why it listed no models; empty where it did


class RemoteEngines:
    """Knows every model by NAME/MODEL; an engine that is away keeps the models it had."""

    def __init__(
        self, engines: Sequence[RemoteEngine], locals_: Callable[[], Sequence[str]]
    ) -> None:
        """``locals_`` names the models that could answer on this machine."""
        self._engines = {engine.name: engine for engine in engines}
        self._locals = locals_
        self._lists: dict[str, Sequence[Listed]] = {}
        self._connections: dict[str, Connection] = {}
        self._asked: float | None = None
        self._asking = asyncio.Lock()
        self.problems: dict[str, str] = {}  # by engine: why it did not list its models

    def reports(self) -> list[EngineReport]:
        """Every engine with its models, or with what is wrong."""
        return [
            EngineReport(
                engine.name,
                engine.address,
                tuple(one.id for one in self._known(engine)),
                self.problems.get(engine.name, ""),
            )
            for engine in self._engines.values()
        ]

    def entries(self) -> list[CatalogEntry]:
        """Every model that is known by now."""
        engines = self._engines.values()
        return [remote_entry(each, one) for each in engines for one in self._known(each)]

    def model(self, name: str) -> RemoteModel:
        """The model of that name, listed or not: its engine knows. Raises UnknownModel, SettingsError."""
        engine_name, _, wanted = name.partition("/")
        engine = self._engines.get(engine_name)
        if engine is None or not wanted:
            raise UnknownModel(name, [entry.name for entry in self.entries()])
        known = (one for one in self._known(engine) if one.id == wanted)
        listed = next(known, None) or Listed(id=wanted)
        return RemoteModel(self._connection(engine), listed, self._locals)

    async def refresh(self) -> None:
        """Ask every engine for its models, unless that was done a moment ago."""
        async with self._asking:
            now = time.monotonic()
            if self._engines and (self._asked is None or now - self._asked > FRESH_SECONDS):
                await asyncio.gather(*map(self._ask, self._engines.values()))
                self._asked = time.monotonic()

    async def know(self, name: str) -> None:
        """Ask the engine ``name`` for its list unless it has given one: what it takes is in there."""
        if name not in self._lists:
            async with self._asking:
                await self._ask(self._engines[name])

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(one.close() for one in self._connections.values()))

    async def _ask(self, engine: RemoteEngine) -> None:
        try:
            self._lists[engine.name] = _listed(await self._connection(engine).get("/models"))
        except AppError as error:
            self.problems[engine.name] = str(error)
            log.warning("%s listed no models: %s", engine.name, error)
            return
        self.problems.pop(engine.name, None)

    def _known(self, engine: RemoteEngine) -> Sequence[Listed]:
        """What it listed; where some are configured only those, also before it lists them."""
        listed = self._lists.get(engine.name, ())
        if not engine.models:
            return listed
        by_id = {one.id: one for one in listed}
        return [by_id.get(name) or Listed(id=name) for name in engine.models]

    def _connection(self, engine: RemoteEngine) -> "Connection":
        # here, because its library takes half a second, and most people have no other engine
        from app.chat.remote.connection import Connection

        if engine.name not in self._connections:
            self._connections[engine.name] = Connection(engine, read_key(engine))
        return self._connections[engine.name]


_LIST: TypeAdapter[list[Listed]] = TypeAdapter(list[Listed])


def _listed(body: Any) -> list[Listed]:
    """The models of a list; raises SettingsError where it is none."""
    try:
        return _LIST.validate_python(body["data"][:MOST_MODELS])
    except (TypeError, KeyError, ValidationError) as error:
        raise SettingsError(
            "it answers /models with no list of models; check that its address ends in /v1"
        ) from error


def read_key(engine: RemoteEngine) -> str | None:
    """Its API key; None where it asks for none. Raises SettingsError, which never has the key."""
    kind, _, place = engine.key.partition(":")
    if not kind:
        return None
    try:
        found = _READERS[kind](place)
    except OSError as error:
        raise SettingsError(
            f"the key of the engine {engine.name} is in {place}, which cannot be read: {error.strerror}"
        ) from error
    key = (found or "").strip()
    if not key:
        raise SettingsError(
            f"the engine {engine.name} has no key: {engine.key} is empty; put its API key there"
        )
    if not (key.isascii() and key.isprintable()):
        raise SettingsError(f"the key of the engine {engine.name} has characters that no key has")
    return key


def _from_file(place: str) -> str:
    file = Path(place).expanduser()
    if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise SettingsError(f"others can read the key in {file}; run: chmod 600 {file}")
    return file.read_text(encoding="utf-8", errors="replace")


def _from_keyring(entry: str) -> str | None:
    try:
        import keyring  # here, because it looks for the desktop's services, and need not be there
        from keyring.errors import KeyringError
    except ImportError as error:
        raise SettingsError(
            f"the key {entry} is in the keyring, which Python cannot read yet; run: {PIP} keyring"
        ) from error
    try:
        key: str | None = keyring.get_password(SERVICE, entry)
    except KeyringError as error:
        raise SettingsError(
            f"the keyring cannot be asked for {entry}: {error}; keep the key in a file (file:PATH)"
        ) from error
    return key


_READERS = {"env": variable, "file": _from_file, "keyring": _from_keyring}
