"""An engine that is already there, as config.toml or models.yaml names it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from app.errors import SettingsError

BACKEND = "openai"  # the protocol that it speaks, and the only one
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.IGNORECASE)
_KEY_KINDS = ("env:", "file:", "keyring:")
_SILENT_SECONDS = 300.0  # a long prompt takes some engines minutes before the first token


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """Where an engine is, and what it asks for; its models are named NAME/MODEL here."""

    name: str
    address: str  # with its path, for example http://10.0.0.5:8000/v1
    key: str = ""  # where its API key is: env:VARIABLE, file:PATH or keyring:ENTRY
    models: tuple[str, ...] = ()  # empty: all that it lists
    timeout: float = _SILENT_SECONDS  # seconds without a byte, after which a request is given up
    ca_file: str = ""  # PEM file of the authority that signed its certificate

    @override
    def __str__(self) -> str:
        """As ``slipstream config`` shows it."""
        return f"{self.name} at {self.address}"

    @property
    def on_this_machine(self) -> bool:
        """Whether it is another program of this machine, and no other machine."""
        host = urlsplit(self.address).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    @property
    def host(self) -> str:
        """The machine, for people."""
        return urlsplit(self.address).netloc


def remote_engines(tables: Mapping[str, Any], place: str = "engines.") -> tuple[RemoteEngine, ...]:
    """The engines of the tables [engines.NAME]; an error names ``place``. Raises SettingsError."""
    return tuple(_engine(name, table, place + name) for name, table in tables.items())


def _engine(name: str, table: object, place: str) -> RemoteEngine:
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{place}: an engine's name has letters, digits, - and _, at most 32")
    if not isinstance(table, Mapping):
        raise SettingsError(f"{place} must be a table with an address, not {table!r}")
    known = ("backend", *(field.name for field in fields(RemoteEngine) if field.name != "name"))
    if unknown := [field for field in table if field not in known]:
        raise SettingsError(f"{place}: unknown field {unknown[0]!r}; known: {', '.join(known)}")
    for problem in _problems(table):
        raise SettingsError(f"{place}: {problem}")
    given = {field: value for field, value in table.items() if field != "backend"}
    given["address"] = given["address"].rstrip("/")
    return RemoteEngine(name, **{**given, "models": tuple(given.get("models", ()))})


def _problems(table: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the fields of one engine; a key is never repeated."""
    if table.get("backend") != BACKEND:
        yield f'backend must be "{BACKEND}", not {table.get("backend")!r}'
    address, key, timeout = table.get("address"), table.get("key", ""), table.get("timeout", 1)
    if not (
        isinstance(address, str) and re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", address)
    ):
        yield f"address must look like http://10.0.0.5:8000/v1, not {address!r}"
    if not isinstance(key, str) or (key and not key.startswith(_KEY_KINDS)):
        yield "key must say where the key is: env:VARIABLE, file:PATH or keyring:ENTRY"
    models = table.get("models", [])
    if not (isinstance(models, list) and all(isinstance(one, str) and one for one in models)):
        yield f"models must be a list of names, not {models!r}"
    if isinstance(timeout, bool) or not (isinstance(timeout, int | float) and 0 < timeout < 1e6):
        yield f"timeout must be a number of seconds above 0, not {timeout!r}"
    if not isinstance(table.get("ca_file", ""), str):
        yield "ca_file must be the path of a PEM file"
