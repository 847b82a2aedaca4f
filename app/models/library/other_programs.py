"""Models that LM Studio, Ollama and huggingface_hub keep on this machine, which need no download."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.models.gguf_check import is_gguf
from app.models.hub.selection import SHARD
from app.models.library.importing import is_model_folder, own_name, shards
from app.settings import OtherFolders

FIRST_SHARD = "-00001-of-"
OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
OLLAMA_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
OLLAMA_HOME = ("registry.ollama.ai", "library")  # of models without an owner


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of another program; ``path`` can be imported, size in bytes."""

    program: str
    name: str
    path: Path
    size: int


def found_models(others: OtherFolders, imported: Iterable[Path] = ()) -> tuple[ForeignModel, ...]:
    """Everything that can be imported; not what ``imported`` (folders or files) has already."""
    known = {_identity(file) for place in imported for file in _weights(place)}
    programs = (
        (_in_hub, others.hub),
        (_in_lm_studio, others.lm_studio),
        (_in_ollama, others.ollama),
    )
    found = (model for look, folder in programs for model in _readable(look, folder))
    return tuple(
        model for model in found if not known & {_identity(file) for file in _weights(model.path)}
    )


def _readable(
    look: Callable[[Path | None], Iterator[ForeignModel]], folder: Path | None
) -> tuple[ForeignModel, ...]:
    """Nothing of a program whose folder is not ours to read: it is no fault of the models here."""
    try:
        return tuple(look(folder))
    except OSError:
        return ()


def _in_hub(cache: Path | None) -> Iterator[ForeignModel]:
    if cache is None or not cache.is_dir():
        return
    from huggingface_hub import scan_cache_dir  # here: it takes half a second, most never need it

    for repo in sorted(scan_cache_dir(cache).repos, key=lambda repo: repo.repo_id):
        newest = max(repo.revisions, key=lambda revision: revision.last_modified, default=None)
        if repo.repo_type == "model" and newest is not None:
            yield from _in_snapshot(repo.repo_id, newest.snapshot_path)


def _in_snapshot(repo: str, folder: Path) -> Iterator[ForeignModel]:
    program = "Hugging Face cache"
    if is_model_folder(folder):
        yield ForeignModel(program, repo.rpartition("/")[2], folder, _size(_weights(folder)))
    for file in _ggufs(folder):
        yield ForeignModel(program, own_name(file), file, _size(shards(file)))


def _in_lm_studio(folder: Path | None) -> Iterator[ForeignModel]:
    """Laid out as publisher/repository/file.gguf; its MLX folders run on Macs only."""
    for file in _ggufs(folder) if folder is not None else ():
        yield ForeignModel("LM Studio", own_name(file), file, _size(shards(file)))


def _in_ollama(folder: Path | None) -> Iterator[ForeignModel]:
    """A manifest names its layers by digest; the layer with the weights is a GGUF file."""
    manifests = None if folder is None else folder / "manifests"
    if folder is None or manifests is None or not manifests.is_dir():
        return
    for manifest in sorted(file for file in manifests.rglob("*") if file.is_file()):
        blob = _ollama_blob(folder, manifest)
        if blob is not None and is_gguf(blob):
            name = _ollama_name(manifest.relative_to(manifests).parts)
            yield ForeignModel("Ollama", name, blob, blob.stat().st_size)


def _ollama_blob(folder: Path, manifest: Path) -> Path | None:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not a manifest of ours to judge
    layers: Any = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == OLLAMA_WEIGHTS:
            digest = OLLAMA_DIGEST.fullmatch(str(layer.get("digest")))
            return folder / "blobs" / f"sha256-{digest[1]}" if digest else None
    return None


def _ollama_name(parts: tuple[str, ...]) -> str:
    kept = parts[2:] if parts[:2] == OLLAMA_HOME else parts[1:]
    return "-".join(kept)


def _ggufs(folder: Path) -> Iterator[Path]:
    """Models, by their first shard; not the image parts of models that see."""
    for file in sorted(folder.rglob("*.gguf")):
        first = not SHARD.search(file.name) or FIRST_SHARD in file.name
        if first and not file.name.lower().startswith("mmproj") and is_gguf(file):
            yield file


def _weights(place: Path) -> list[Path]:
    """The files that make the model's size, of a folder or of a GGUF file."""
    if place.is_dir():
        return [*place.glob("*.safetensors"), *place.glob("*.gguf")]
    return shards(place) if place.is_file() else []


def _identity(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_dev, found.st_ino


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)
