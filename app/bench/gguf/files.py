"""The files that are measured: one function, at the cost of a larger model, in several types."""

from collections.abc import Callable
from hashlib import file_digest, sha256
from pathlib import Path

from app.bench.offload.checkpoint import write_inflated
from app.bench.options import GGUF_KINDS
from engine.models.gguf.export import open_source, quantise, write_gguf

# 346M parameters of the bundled model, in rows whose lengths blocks of 256 divide, as those of the
# models that people have: of others llama.cpp makes no 4-bit blocks, but some of 5 and 8 bits.
INFLATE, HIDDEN = 32, 512
FULL = GGUF_KINDS[0]  # what the others are made from
PRE = "gpt-2"  # how llama.cpp cuts text into words: nothing is encoded with these files


def gguf_file(source: Path, kind: str, folder: Path, progress: Callable[[str], None]) -> Path:
    """The widened model of ``source`` as this type of GGUF, made in ``folder`` unless it is there."""
    wide = folder / f"{_named(source)}-{INFLATE}x{HIDDEN}"
    file, full = (folder / f"{wide.name}-{name}.gguf" for name in (kind, FULL))
    folder.mkdir(parents=True, exist_ok=True)
    if not full.exists():
        write_inflated(source, INFLATE, wide, progress, HIDDEN)
        _write(wide, full, progress)
    if not file.exists():
        fresh = file.with_suffix(".part")
        quantise(full, kind, fresh, lambda done, of: progress(f"{file.name}: {done} of {of}"))
        fresh.replace(file)
    return file


def draft_file(source: Path, folder: Path, progress: Callable[[str], None]) -> Path:
    """The draft model of ``source`` as it is, in full precision."""
    file = folder / f"{_named(source)}-{FULL}.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        _write(source, file, progress)
    return file


def _named(source: Path) -> str:
    """The folder's name and its weights': files of weights that were trained anew are made anew."""
    digest = sha256()
    for weights in sorted(source.glob("*.safetensors")):
        with weights.open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return f"{source.name}-{digest.hexdigest()[:8]}"


def _write(source: Path, file: Path, progress: Callable[[str], None]) -> None:
    fresh = file.with_suffix(".part")
    for done, total in write_gguf(open_source(source), FULL, PRE, fresh):
        progress(f"{file.name}: {done} of {total} tensors")
    fresh.replace(file)
