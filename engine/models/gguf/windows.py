"""What layers with sliding windows leave in a cache: asked of llama.cpp, which knows which layers these are."""

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.models.gguf.header import GgufHeader
from engine.models.gguf.library import llama_library
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
    return _asked(header.path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=_KNOWN)
def _asked(path: Path, size: int, time: int) -> Windows | None:
    """Without loading weights or allocating a cache; a changed file is asked again."""
    del size, time
    library = llama_library()
    api, params = library.api, library.model_parameters()
    if not hasattr(params, "no_alloc"):
        return None
    params.no_alloc, params.n_gpu_layers = True, 0
    params.load_mode = api.LLAMA_LOAD_MODE_NONE  # mapped files it would end the process for
    model = api.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        return None
    words: list[str] = []
    sizes = api.llama_context_default_params()
    sizes.n_ctx, sizes.n_batch, sizes.n_ubatch, sizes.n_seq_max = _CELLS, 1, 1, 1
    sizes.swa_full = True
    with library.listening(lambda _, text: words.append(text)):
        context = api.llama_init_from_model(model, sizes)
    tokens = api.llama_model_n_swa(model)
    if context:
        api.llama_free(context)
    api.llama_model_free(model)
    rows = _rows("".join(words))
    if not tokens or "SWA" not in rows:
        return None
    return Windows(tokens, rows.get("non-SWA", 0), rows["SWA"])


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
