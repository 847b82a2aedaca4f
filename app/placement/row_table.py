"""This machine's row table: passes by type of a GGUF file, measured once and remembered."""

import json
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

from app.files import replace_file
from app.placement.machine import installed_state, processor
from app.sandbox import Sandbox, SandboxEnded, SandboxTimeout
from app.settings import Settings
from engine.errors import EngineError, ModelUnusable
from engine.hardware.footprint import LLAMA_CPP
from engine.hardware.limits import ram
from engine.hardware.reasons import gib
from engine.models.gguf.file_types import USUAL, WIDTHS, RowTable
from engine.platform.cores import usable_threads
from engine.platform.instructions import instruction_sets
from engine.platform.toolchain import GGUF_SUPPORT

_REMEMBERED = "file-types.json"
_NEEDED = 3 << 30  # bytes of the disk, and of memory, while all types are there
_MEMORY = 16 << 30  # bytes that the process may allocate; mapped files do not count
_QUIET_SECONDS = 300.0  # longest that one step takes


def known_table(settings: Settings) -> RowTable | None:
    """In milliseconds; None where nothing was measured with this processor and this llama.cpp."""
    if find_spec("llama_cpp") is None:
        return None
    try:
        stored = json.loads((settings.home / _REMEMBERED).read_text(encoding="utf-8"))
        return _table(stored["seconds"]) if stored["machine"] == measured_on(settings) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # it is measured again


def measured_table(
    settings: Settings, progress: Callable[[str], None], *, again: bool = False
) -> RowTable:
    """The table, measured in about a minute where it is not remembered; ``progress`` gets a few words.

    Raises ModelUnusable with the remedy.
    """
    known = None if again else known_table(settings)
    if known is not None:
        return known
    _check_room(settings)
    with tempfile.TemporaryDirectory(prefix=".types-", dir=settings.home) as folder:
        table = _measured(settings, Path(folder), progress)
    seconds = {kind: list(times) for kind, times in table.seconds.items()}
    stored = {"machine": measured_on(settings), "rows": WIDTHS, "seconds": seconds}
    replace_file(settings.home / _REMEMBERED, json.dumps(stored, indent=1))
    return table


def measured_on(settings: Settings) -> str:
    """What a table is remembered for: it changes with anything that would change a time."""
    sets, threads = " ".join(instruction_sets()), usable_threads()
    library = f"llama-cpp-python {installed_state('llama-cpp-python')}"
    return f"{processor()}, {sets}, {threads} threads, {library}, exact {settings.exact}"


def _table(seconds: dict[str, list[float]]) -> RowTable:
    """Out of JSON; raises TypeError, ValueError or AttributeError when it is something else."""
    found = {kind: tuple(map(float, times)) for kind, times in seconds.items()}
    whole = all(len(times) == len(WIDTHS) and min(times) > 0 for times in found.values())
    if USUAL not in found or not whole:
        raise ValueError(f"a table with the times {found}")
    return RowTable(found)


def _check_room(settings: Settings) -> None:
    if find_spec("gguf") is None or find_spec("llama_cpp") is None:
        raise ModelUnusable(
            "measuring the types of GGUF files needs the packages gguf and llama-cpp-python; "
            f"run: {GGUF_SUPPORT}"
        )
    free = {
        "memory": ram().available,
        f"the disk of {settings.home}": shutil.disk_usage(settings.home).free,
    }
    for place, left in free.items():
        if left < _NEEDED:
            raise ModelUnusable(
                f"measuring the types of GGUF files takes {gib(_NEEDED)} for a minute, "
                f"{gib(left)} are free in {place}; free some and try again"
            )


def _measured(settings: Settings, folder: Path, progress: Callable[[str], None]) -> RowTable:
    """In a process of its own, which Ctrl-C or an error in llama.cpp ends."""
    process = Sandbox(_measure_there, (str(folder), settings.exact), _MEMORY)
    try:
        while isinstance(message := process.receive(_QUIET_SECONDS), str):
            progress(message)
    except (SandboxTimeout, SandboxEnded) as error:
        raise ModelUnusable(
            f"the types of GGUF files were not measured: {error}; close other programs and try again"
        ) from error
    finally:
        process.close()
    if isinstance(message, Exception):
        raise ModelUnusable(f"the types of GGUF files were not measured: {message}") from message
    return _table(message)


def _measure_there(connection: Connection, folder: str, exact: bool | None) -> None:  # noqa: FBT001
    from engine.models.gguf.sample import write_sample
    from engine.runtime.rounding import exact_or_usual
    from engine.runtime.row_measurement import measure

    full = Path(folder) / "full.gguf"
    try:
        write_sample(full)
        table = measure(full, connection.send, exact=exact_or_usual(exact, LLAMA_CPP))
    except (EngineError, OSError) as error:
        connection.send(ModelUnusable(str(error)))
    else:
        connection.send(dict(table.seconds))
