"""Folders of models, some as other programs make them."""

import hashlib
import json
import shutil
from pathlib import Path

from app.models.catalog import ModelRecord
from engine.decoder.config import INDEX

POCKET = Path(__file__).parents[4] / "engine" / "bundled" / "pocket"

GGUF = b"GGUF" + bytes(996)


def model_folder(folder: Path, weights: bytes = b"weights") -> Path:
    """Hugging Face layout, with a file that no model needs."""
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "modeling_evil.py"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def gguf(file: Path, content: bytes = GGUF) -> Path:
    """A file that begins as GGUF."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def hub_cache(cache: Path, repo: str, commit: str = "c" * 40) -> Path:
    """A snapshot of symbolic links into blobs, as huggingface_hub keeps it."""
    root = cache / f"models--{repo.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        blob = root / "blobs" / hashlib.sha256(name.encode()).hexdigest()
        blob.write_bytes(name.encode())
        (snapshot / name).symlink_to(blob)
    return snapshot


def ollama(folder: Path, name: str, digest: str | None = None, content: bytes = GGUF) -> Path:
    """A manifest with the blob that it names."""
    manifest = folder / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256(content).hexdigest()
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64},
        {"mediaType": "application/vnd.ollama.image.model", "digest": digest or f"sha256:{found}"},
    ]
    manifest.write_text(json.dumps({"layers": layers}))
    return gguf(folder / "blobs" / f"sha256-{found}", content)


def wide_model(folder: Path) -> Path:
    """Pocket with half a gigabyte more by its headers; that file is a hole."""
    shutil.copytree(POCKET, folder)
    entry = {"dtype": "F32", "shape": [2**27], "data_offsets": [0, 2**29]}
    header = json.dumps({"extra": entry}).encode()
    with (folder / "more.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 2**29)
    index = {"weight_map": {"all": "model.safetensors", "extra": "more.safetensors"}}
    (folder / INDEX).write_text(json.dumps(index))
    ModelRecord(folder.name, "a test").write(folder)
    return folder
