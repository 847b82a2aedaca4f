"""Search of the hub: models that could be downloaded, with what is known of their size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from app.errors import HubError, UnknownRepository
from app.model_names import is_repository, pasted
from app.models.hub.client import Hub
from engine.models.gguf.kinds import other_end

KNOWN_OF_EACH = ("downloads", "gated", "tags", "safetensors", "gguf")
BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I8": 1, "U8": 1, "F8_E4M3": 1}


@dataclass(frozen=True, slots=True)
class Found:
    """One repository that matched; None is what the hub does not say."""

    repo: str
    gguf: bool
    gated: bool
    downloads: int
    licence: str | None
    parameters: int | None
    size: int | None  # bytes of the weights; of a GGUF repository it depends on the file


class _Weights(BaseModel):
    parameters: dict[str, int] = Field(default_factory=dict)  # by dtype
    total: int | None = None


class _Row(BaseModel):
    id: str
    downloads: int = 0
    gated: bool | str = False
    tags: list[str] = Field(default_factory=list)
    safetensors: _Weights | None = None
    gguf: dict[str, Any] | None = None


def search(hub: Hub, words: str, limit: int = 20) -> tuple[Found, ...]:
    """Text models that match ``words`` and can be run here, most downloaded first.

    A repository that is named, or whose address is pasted, comes before all others.
    """
    named = pasted(words, hub.endpoint)
    query = {
        "search": named.repo if named else words,
        "sort": "downloads",
        "direction": "-1",
        "limit": str(limit),
        "pipeline_tag": "text-generation",
        "expand[]": list(KNOWN_OF_EACH),
    }
    try:
        rows = TypeAdapter(list[_Row]).validate_python(hub.ask("models", query))
    except ValidationError as error:
        raise HubError(f"what {hub.host} answered to the search cannot be used") from error
    found = [_found(row) for row in rows if is_repository(row.id) and _runs(row)]
    if named:
        found.sort(key=lambda one: one.repo.lower() != named.repo.lower())
        if not found or found[0].repo.lower() != named.repo.lower():
            found[:0] = _named(hub, named.repo)
    return tuple(found)


def _named(hub: Hub, repo: str) -> list[Found]:
    """A repository that the search does not list, as its task is another; none of that name."""
    try:
        answer = hub.ask(f"models/{repo}", {"expand[]": list(KNOWN_OF_EACH)}, repo)
        return [_found(_Row.model_validate(answer))]
    except UnknownRepository:
        return []
    except ValidationError as error:
        raise HubError(f"what {hub.host} answered about {repo} cannot be used") from error


def _runs(row: _Row) -> bool:
    family = str((row.gguf or {}).get("architecture", ""))
    return bool({"safetensors", "gguf"} & set(row.tags)) and not other_end(family)


def _found(row: _Row) -> Found:
    weights = row.safetensors or _Weights()
    return Found(
        repo=row.id,
        gguf="gguf" in row.tags,
        gated=bool(row.gated),
        downloads=row.downloads,
        licence=next((tag[8:] for tag in row.tags if tag.startswith("license:")), None),
        parameters=weights.total or _total(row.gguf or {}),
        size=_bytes(weights.parameters),
    )


def _total(gguf: Mapping[str, Any]) -> int | None:
    total = gguf.get("total")
    return total if isinstance(total, int) else None


def _bytes(parameters: Mapping[str, int]) -> int | None:
    """Bytes of weights counted by dtype; None with a dtype of unknown width."""
    if not parameters or not set(parameters) <= set(BYTES):
        return None
    return sum(BYTES[dtype] * count for dtype, count in parameters.items())
