"""llama.cpp as a library: loaded when first needed, with its log redirected.

It holds one log callback for the whole process and calls it at any time, so exactly one is installed
and it is never freed.
"""

import os
import platform
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.errors import ModelUnusable
from engine.platform.threads import sleep_soon
from engine.platform.toolchain import (
    GGUF_SUPPORT,
    TILED_SWITCH,
    attends_alike,
    left_out_by,
    rounds_alike,
    rounds_apart,
    spills,
    tiled_apart,
)

Listener = Callable[[int, str], None]  # (level, one piece of the log)

ERROR = 4  # llama.cpp's level
LAST_ERRORS = 4
NAMED = "error loading model: "  # before what is wrong with a file; less telling errors follow
USES_AMX = b"AMX_INT8 = 1"  # in llama.cpp's description of how it was compiled
X86 = ("x86_64", "AMD64")
LOADED_TYPE = re.compile(r"- type +(\w+):")  # in what llama.cpp logs when it reads a file
MAPS = Path("/proc/self/maps")  # Linux alone: elsewhere GCC does not compile for AMX


@dataclass(frozen=True, slots=True)
class Library:
    """The C interface and llama.cpp's last errors."""

    api: ModuleType
    amx_left_out_by: str = ""  # the compiler because of which AMX must not be used here
    errors: list[str] = field(default_factory=list)  # the last few, oldest first
    _listeners: list[Listener] = field(default_factory=list)
    _kept: list[object] = field(default_factory=list)  # the callback: C holds only its address

    @property
    def spills(self) -> bool:
        """Whether 4-bit weights are multiplied more slowly than they could be; reads the libraries."""
        return platform.machine() in X86 and any(map(spills, compiled_parts()))

    @property
    def rounds_apart(self) -> bool:
        """Whether a row of K-quants has other bits alone than among many; reads the libraries."""
        return platform.machine() in X86 and any(map(rounds_apart, compiled_parts()))

    @property
    def attends_alike(self) -> bool:
        """Whether attention over a float16 cache gives a row the same bits in every pass; reads the libraries."""
        return any(map(attends_alike, compiled_parts()))

    def round_alike(self, types: Collection[str]) -> None:
        """Use no kernel that rounds a row of such weights unlike the others.

        llama.cpp asks for this once in a process, at its first product.
        """
        changed = any(map(rounds_alike, compiled_parts()))
        if tiled_apart(types, changed=changed):
            os.environ[TILED_SWITCH] = "0"  # noqa: TID251 - the library has no other switch

    @contextmanager
    def noting_types(self) -> Iterator[set[str]]:
        """The types of the weights that are loaded inside the block, as llama.cpp logs them."""
        types: set[str] = set()

        def note(_: int, words: str) -> None:
            if found := LOADED_TYPE.search(words):
                types.add(found[1].lower())

        with self.listening(note):
            yield types

    def last_error(self) -> str:
        """The last error, for the end of a clause; of a file the one that names what is wrong."""
        parts = (error.partition(NAMED)[2] for error in self.errors)
        told = next(filter(None, parts), self.errors[-1] if self.errors else "")
        return f": {told}" if told else ""

    def model_parameters(self) -> Any:
        """llama.cpp's defaults; without weights repacked for AMX where that would end the process."""
        parameters = self.api.llama_model_default_params()
        parameters.use_extra_bufts = parameters.use_extra_bufts and not self.amx_left_out_by
        return parameters

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Inside the block, everything that llama.cpp logs also goes to ``listener``."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def take_over_log(self) -> None:
        """Install the callback; once."""

        def note(level: int, text: bytes, _: object) -> None:
            words = text.decode(errors="replace")
            if level == ERROR:
                self.errors[:] = [*self.errors[1 - LAST_ERRORS :], words.strip()]
            for listener in self._listeners:
                listener(level, words)

        callback = self.api.llama_log_callback(note)
        self._kept.append(callback)
        self.api.llama_log_set(callback, None)


@cache
def llama_library() -> Library:
    """llama.cpp, started once for the process; raises ModelUnusable where it is not installed."""
    sleep_soon(os.environ)  # noqa: TID251 - the library's only argument, read when it is loaded
    try:
        from llama_cpp import llama_cpp as api
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelUnusable(
            f"GGUF files need llama-cpp-python, which cannot be loaded here ({error}); "
            f"run: {GGUF_SUPPORT}"
        ) from error
    library = Library(api, _amx_left_out_by(api))
    library.take_over_log()
    api.llama_backend_init()
    return library


def compiled_parts() -> Iterator[bytes]:
    """The contents of llama.cpp's own shared libraries; none where the system does not list them."""
    if not MAPS.exists():
        return
    listed = MAPS.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    files = {Path(line.split(maxsplit=5)[-1]) for line in listed if "ggml" in line}
    yield from (
        file.read_bytes() for file in sorted(files) if ".so" in file.name and file.is_file()
    )


def _amx_left_out_by(api: ModuleType) -> str:
    """See ``engine.platform.toolchain``; empty where AMX is used rightly, or not at all."""
    if USES_AMX not in api.llama_print_system_info():
        return ""
    return next(filter(None, map(left_out_by, compiled_parts())), "")
