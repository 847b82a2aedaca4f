"""Options of ``slipstream models``: one value for each action."""

from dataclasses import dataclass
from pathlib import Path

from app.settings import Settings


@dataclass(frozen=True, slots=True)
class SearchModels:
    """Find models whose name holds ``words``, at most ``limit`` of the hub."""

    settings: Settings
    words: str
    limit: int


@dataclass(frozen=True, slots=True)
class PullModel:
    """Download a model of the catalogue, or a repository; ``files`` narrow what is fetched."""

    settings: Settings
    name: str
    files: tuple[str, ...]
    draft: bool


@dataclass(frozen=True, slots=True)
class ListModels:
    """Show what is on this machine, or what could be downloaded."""

    settings: Settings
    available: bool


@dataclass(frozen=True, slots=True)
class RemoveModel:
    """Take away a model or an unfinished download."""

    settings: Settings
    name: str


@dataclass(frozen=True, slots=True)
class ImportModel:
    """Use a folder or a GGUF file that is on a disk; neither copied nor referenced is linked."""

    settings: Settings
    path: Path
    name: str | None
    copied: bool
    reference: bool


@dataclass(frozen=True, slots=True)
class KeepToken:
    """Read a token from standard input and keep it; an empty one is forgotten."""

    settings: Settings


ModelsOptions = SearchModels | PullModel | ListModels | RemoveModel | ImportModel | KeepToken
