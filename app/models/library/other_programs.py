"""Models that other programs keep on this machine, which need no download."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from app.models.gguf_check import begins_a_model, is_gguf
from app.models.library.importing import is_model_folder, own_name, shards
from app.models.model_check import other_kind
from app.other_folders import OtherFolders
from engine.decoder.config import read_fields
from engine.errors import ModelUnusable
from engine.models.gguf.header import peeked_family
from engine.models.gguf.kinds import other_end

NO_NAMES = frozenset({"model", "ggml-model", "pytorch_model"})  # of files whose folder has the name
OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
OLLAMA_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
OLLAMA_HOME = ("registry.ollama.ai", "library")  # of models without an owner
UNFINISHED = "incomplete-"  # begins the names of GPT4All's downloads
DEEPEST = 8  # folders inside each other
MOST_FOLDERS = 20_000  # a second or two; the largest collections have hundreds

Found = Iterator[tuple[str, Path]]  # name, and what can be imported


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of another program; ``path`` can be imported, size in bytes."""

    program: str
    name: str
    path: Path
    size: int


def found_models(others: OtherFolders, imported: Iterable[Path] = ()) -> tuple[ForeignModel, ...]:
    """Everything that can be imported, once; not what ``imported`` (folders or files) has already."""
    seen = {key for place in imported for file in _weights(place) if (key := _identity(file))}
    found: list[ForeignModel] = []
    for program, name, path in _all(others):
        files = _weights(path)
        keys = {key for file in files if (key := _identity(file))}
        if len(keys) == len(files) and keys.isdisjoint(seen):  # else a link leads nowhere
            seen |= keys
            found.append(ForeignModel(program, name, path, _size(files)))
    return tuple(found)


def _all(others: OtherFolders) -> Iterator[tuple[str, str, Path]]:
    programs = (
        ("Hugging Face cache", others.hub, _in_hub),
        ("LM Studio", others.lm_studio, _ggufs),
        ("Ollama", others.ollama, _in_ollama),
        ("llama.cpp", others.llama_cpp, _ggufs),
        ("Jan", others.jan, _ggufs),
        ("GPT4All", others.gpt4all, _ggufs),
    )
    for program, folders, look in programs:
        for folder in folders:
            yield from ((program, *one) for one in look(folder))


def _in_hub(cache: Path) -> Found:
    """Of each repository the newest snapshot with a model: models--owner--name/snapshots/commit."""
    for repository in _listed(cache):
        if repository.name.startswith("models--"):
            snapshots = sorted(_listed(repository / "snapshots"), key=_age, reverse=True)
            name = repository.name.rpartition("--")[2]
            yield from next(filter(None, (list(_in_snapshot(name, one)) for one in snapshots)), ())


def _in_snapshot(name: str, folder: Path) -> Found:
    if is_model_folder(folder) and not _is_other_kind(folder):
        yield name, folder
    yield from _ggufs(folder)


def _ggufs(folder: Path) -> Found:
    """Models, by their first shard; not the image parts of models that see."""
    for file in sorted(_walked(folder, ".gguf")):
        if begins_a_model(file.name) and _can_write(file):
            yield own_name(file.parent if file.stem.lower() in NO_NAMES else file), file


def _in_ollama(folder: Path) -> Found:
    """A manifest names its layers by digest; the layer with the weights is a GGUF file."""
    manifests = folder / "manifests"
    for manifest in sorted(_walked(manifests)):
        blob = _ollama_blob(folder, manifest)
        if blob is not None and _can_write(blob):
            yield _ollama_name(manifest.relative_to(manifests).parts), blob


def _can_write(file: Path) -> bool:
    """Whether it is a whole GGUF file, of a family that writes text: programs bring embeddings, too."""
    if file.name.startswith(UNFINISHED) or not is_gguf(file):
        return False
    return not other_end(peeked_family(file))


def _is_other_kind(folder: Path) -> bool:
    """Whether its config says so; one that cannot be read is a fault that an import explains."""
    try:
        config = read_fields(folder / "config.json")
    except ModelUnusable:
        return False
    return bool(other_kind({file.name for file in _listed(folder)}, config))


def _walked(folder: Path, ending: str = "") -> Iterator[Path]:
    """Every file below with this ending, through links to folders, too; what cannot be read is passed over.

    Where a setting names a whole disk, the walk ends with the first folders: a person waits for it.
    """
    entered: set[tuple[int, int] | None] = {None}
    for place, folders, files in islice(os.walk(folder, followlinks=True), MOST_FOLDERS):
        here = Path(place)
        key = _identity(here)
        if key in entered or len(here.parts) - len(folder.parts) >= DEEPEST:
            folders.clear()
            continue
        entered.add(key)
        named = (here / name for name in files if name.lower().endswith(ending))
        yield from (file for file in named if os.path.isfile(file))  # noqa: PTH113


def _listed(folder: Path) -> Sequence[Path]:
    """What is in a folder, by name; nothing of one that cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()


def _age(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


def _ollama_blob(folder: Path, manifest: Path) -> Path | None:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return None  # not a manifest of ours to judge
    layers: Any = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == OLLAMA_WEIGHTS:
            digest = OLLAMA_DIGEST.fullmatch(str(layer.get("digest")))
            return folder / "blobs" / f"sha256-{digest[1]}" if digest else None
    return None


def _ollama_name(parts: tuple[str, ...]) -> str:
    kept = parts[2:] if parts[:2] == OLLAMA_HOME else parts[1:]
    return own_name(Path("-".join(kept)))


def _weights(place: Path) -> list[Path]:
    """The files that make the model's size, of a folder or of a GGUF file."""
    files = [file for file in _listed(place) if file.suffix.lower() in (".safetensors", ".gguf")]
    return files or (shards(place) if os.path.isfile(place) else [])  # noqa: PTH113 - raises nothing


def _identity(file: Path) -> tuple[int, int] | None:
    """The same for two names of one file; None of a link that leads nowhere."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)
