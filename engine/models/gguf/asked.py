"""What llama.cpp tells of a file before it is loaded: which layers have windows, whether states can go back."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.models.gguf.header import GgufHeader
from engine.models.gguf.library import Library, llama_library
from engine.models.gguf.state_shape import number

_CELLS = 1 << 20  # so that MiB of a cache, which the library logs, are bytes of a token
_NUMBER = 2  # bytes of a key's or a value's number there
_CACHE = re.compile(r"creating +(non-SWA|SWA) KV cache|llama_kv_cache: size = +([\d.]+) MiB")
_KNOWN = 16  # files, the latest


@dataclass(frozen=True, slots=True)
class Windows:
    """Of a model some of whose layers see only the last tokens."""

    tokens: int  # that such a layer sees
    wide: int  # numbers that a token leaves in the caches of the layers that see all
    narrow: int  # in those of the layers with windows


def windows_of(header: GgufHeader) -> Windows | None:
    """The windows of a file; None where no layer has one, or llama.cpp does not tell. Raises ModelUnusable."""
    if not number(header, "attention.sliding_window"):
        return None
    state = header.path.stat()
    return _windows(header.path, state.st_size, state.st_mtime_ns)


def goes_back(header: GgufHeader) -> bool:
    """Whether llama.cpp can keep the states after the last rows, too. Raises ModelUnusable."""
    state = header.path.stat()
    return _goes_back(header.path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=_KNOWN)
def _windows(path: Path, size: int, time: int) -> Windows | None:
    """A changed file is asked again."""
    del size, time
    words: list[str] = []
    with _described(path) as (library, model, sizes):
        if not model:
            return None
        sizes.n_ctx, sizes.n_batch, sizes.n_ubatch, sizes.swa_full = _CELLS, 1, 1, True
        with library.listening(lambda _, text: words.append(text)):
            context = library.api.llama_init_from_model(model, sizes)
        tokens = library.api.llama_model_n_swa(model)
        if context:
            library.api.llama_free(context)
    rows = _rows("".join(words))
    if not tokens or "SWA" not in rows:
        return None
    return Windows(tokens, rows.get("non-SWA", 0), rows["SWA"])


@lru_cache(maxsize=_KNOWN)
def _goes_back(path: Path, size: int, time: int) -> bool:
    """By a context that may go back one row: the library takes that away where it cannot."""
    del size, time
    with _described(path) as (library, model, sizes):
        if not model:
            return False
        sizes.n_ctx = sizes.n_batch = sizes.n_ubatch = 64
        sizes.n_rs_seq, sizes.offload_kqv = 1, False
        context = library.api.llama_init_from_model(model, sizes)
        if not context:
            return False
        found = int(library.api.llama_n_rs_seq(context))
        library.api.llama_free(context)
    return found > 0


@contextmanager
def _described(path: Path) -> Iterator[tuple[Library, object, Any]]:
    """The model without its weights, or nothing, and the sizes of a context of one sequence."""
    library = llama_library()
    api, params = library.api, library.model_parameters()
    model = None
    if hasattr(params, "no_alloc"):
        params.no_alloc, params.n_gpu_layers = True, 0
        params.load_mode = api.LLAMA_LOAD_MODE_NONE  # mapped files it would end the process for
        model = api.llama_model_load_from_file(os.fsencode(path), params)
    sizes = api.llama_context_default_params()
    sizes.n_seq_max = 1
    try:
        yield library, model, sizes
    finally:
        if model:
            api.llama_model_free(model)


def _rows(log: str) -> dict[str, int]:
    """Numbers of a token by the kind of cache."""
    rows: dict[str, int] = {}
    kind = ""
    for found in _CACHE.finditer(log):
        if found[1]:
            kind = found[1]
        elif kind:
            rows[kind] = round(float(found[2])) // _NUMBER
    return rows
