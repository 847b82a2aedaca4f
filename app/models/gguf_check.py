"""Each new GGUF file is loaded in a sandbox once before the app uses it."""

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path

from app.files import replace_file
from app.sandbox import Sandbox, SandboxEnded, SandboxTimeout
from app.settings import Settings
from engine.errors import EngineError, ModelUnusable
from engine.models.gguf.consistency import check_consistent
from engine.models.gguf.header import MAGIC, GgufHeader, read_parts
from engine.platform.toolchain import GGUF_SUPPORT, PIP

log = logging.getLogger(__name__)

RECORD = "checked-gguf.json"
MOST_REMEMBERED = 200
SMOKE_TOKENS = 8
BASE_SECONDS = 60.0
SLOWEST_READ = 40e6  # bytes a second
_LATER_PART = re.compile(r"-(?!00001-)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_BESIDE = re.compile(r"(^|/)(mmproj|imatrix)[-_.]|[-_.]mmproj\b|\.imatrix\.", re.IGNORECASE)
SPLIT = re.compile(r"(.*)-\d{5}-of-\d{5}\.gguf")
MAC_NOTES = "._"  # begins the names of what a Mac keeps beside each file on other disks
HEAD_BYTES = 16 << 20  # of each part: most headers are shorter
BASE_MEMORY = 4 << 30  # bytes, plus twice the size of the file


def check_gguf(settings: Settings, file: Path) -> None:
    """Raise ModelUnusable, with one sentence, unless this file loads and generates.

    What was found is remembered by the file's size, time and first bytes, so a file is tried once; reading
    a header of 300,000 words takes half a second.
    """
    key = _fingerprint(file)
    record = settings.home / RECORD
    known = _remembered(record)
    fault = known.get(key)
    if fault is None:
        parts = read_parts(file)
        check_consistent(parts)
        fault = _tried(file, parts)
        _remember(record, {**known, key: fault})
    if fault:
        raise ModelUnusable(f"{file} cannot be used: {fault}")


def gguf_file(place: Path) -> Path | None:
    """The GGUF file that ``place`` is, or the only model among those in the folder; None if none.

    Of a model split over several files, the first. Raises ModelUnusable where several would do.
    """
    if place.is_file():
        return place if place.suffix.lower() == ".gguf" or is_gguf(place) else None
    if not place.is_dir() or any(place.glob("*.safetensors")):
        return None
    found = [file for file in ggufs(place) if begins_a_model(file.name)]
    if len(found) > 1:
        raise ModelUnusable(
            f"the folder {place} holds {len(found)} GGUF models; give the path of one, such as "
            f"{found[0]}"
        )
    return found[0] if found else None


def ggufs(folder: Path) -> list[Path]:
    """Files of that ending, in any case of letters, by name; links that lead nowhere among them."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() == ".gguf" and not file.name.startswith(MAC_NOTES)
        if not (file.is_dir() or is_special(file))
    )


def is_special(path: Path) -> bool:
    """Whether it is a pipe, a socket or a device: who opens it may wait, or read, for ever."""
    return path.exists() and not (path.is_file() or path.is_dir())


def begins_a_model(name: str) -> bool:
    """Whether a GGUF file's name is that of a model, or of its first part."""
    return not (beside_a_model(name) or _LATER_PART.search(name))


def beside_a_model(name: str) -> bool:
    """Whether it lies next to a model: eyes for pictures, or a table for quantising."""
    return bool(_BESIDE.search(name))


def is_gguf(file: Path) -> bool:
    """Whether the file begins as GGUF does, whatever it is called."""
    try:
        if not file.is_file():  # opening a pipe waits for its other end
            return False
        with file.open("rb") as content:
            return content.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _tried(file: Path, parts: Sequence[GgufHeader]) -> str:
    """What is wrong with the file, empty if nothing; raises ModelUnusable for what may pass."""
    size = sum(part.path.stat().st_size for part in parts)
    seconds = BASE_SECONDS + size / SLOWEST_READ
    process = Sandbox(_try, (str(file),), BASE_MEMORY + 2 * size)
    try:
        fault: str = process.receive(seconds)
    except SandboxTimeout as error:
        raise ModelUnusable(
            f"{file} was not loaded: the first try of a new file ended because {error}; "
            "close other programs and try again, or choose a smaller model"
        ) from error
    except SandboxEnded as error:
        if error.passing:
            raise ModelUnusable(
                f"{file} was not loaded: the first try of a new file ended because {error}; "
                "close other programs and try again, or choose a smaller model"
            ) from error
        return f"llama.cpp breaks when it reads this file ({error}); get the file again"
    finally:
        process.close()
    return fault


def _try(connection: Connection, file: str) -> None:
    """In the confined process."""
    from engine.models.gguf.smoke import smoke

    try:
        smoke(Path(file), SMOKE_TOKENS)
    except EngineError as error:
        connection.send(f"{error}; {_advice(str(error))}")
    else:
        connection.send("")


def _advice(error: str) -> str:
    if "unknown model architecture" in error or "unknown pre-tokenizer" in error:
        return (
            f"this family is newer than the llama.cpp here: run {PIP} --upgrade llama-cpp-python, "
            "or choose another model"
        )
    return "get the file again, or choose another model"


def _fingerprint(file: Path) -> str:
    """Changes with the parts' sizes, times and first bytes, and with the library that reads them."""
    try:
        library = version("llama-cpp-python")
    except PackageNotFoundError as error:
        raise ModelUnusable(
            f"{file} is a GGUF file, and llama-cpp-python, which runs these, is not "
            f"installed here; run: {GGUF_SUPPORT}"
        ) from error
    digest = hashlib.sha256(library.encode())
    try:
        for part in _parts(file):
            state = part.stat()
            digest.update(f"{state.st_size} {state.st_mtime_ns}\n".encode())
            with part.open("rb") as opened:
                digest.update(opened.read(HEAD_BYTES))
    except OSError as error:
        raise ModelUnusable(f"{file} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _parts(file: Path) -> list[Path]:
    """The file, or all parts that are there of a model split over several."""
    split = SPLIT.fullmatch(file.name)
    if split is None:
        return [file]
    others = (SPLIT.fullmatch(each.name) for each in file.parent.iterdir())
    return sorted(file.with_name(each[0]) for each in others if each and each[1] == split[1])


def _remembered(record: Path) -> dict[str, str]:
    """Faults by fingerprint, oldest first; a lost or damaged record costs one more try each."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    kept = found.items() if isinstance(found, dict) else ()
    return {key: fault for key, fault in kept if isinstance(fault, str)}


def _remember(record: Path, faults: dict[str, str]) -> None:
    """Where it cannot be written, the file is tried again next time."""
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(record, json.dumps(dict(list(faults.items())[-MOST_REMEMBERED:])))
    except OSError:
        log.exception("that a GGUF file was checked is not kept")
