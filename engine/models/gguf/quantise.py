"""A full GGUF file to a smaller one, by llama.cpp's own quantiser."""

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

from engine.errors import ModelUnusable
from engine.models.gguf.library import llama_library

QUANTISED_TYPES = {"q8_0": 7, "q4_k_m": 15}  # name -> llama.cpp's file type
LONGEST_WORDS = 300


def quantise(source: Path, kind: str, out: Path, progress: Callable[[int, int], None]) -> None:
    """Write ``out``; ``progress(tensors, of all)``; raises ModelUnusable."""
    library = llama_library()
    api, last = library.api, [""]

    def note(_level: int, said: str) -> None:
        if found := re.match(r"\[ *(\d+)/ *(\d+)\]", said):
            progress(int(found[1]), int(found[2]))
        elif said.strip():
            last[0] = said.strip()

    parameters = api.llama_model_quantize_default_params()
    parameters.ftype = QUANTISED_TYPES[kind]
    parameters.nthread = os.cpu_count() or 1
    files = (os.fsencode(source), os.fsencode(out))
    with library.heard(note):
        code = api.llama_model_quantize(*files, ctypes.byref(parameters))
    if code:
        raise ModelUnusable(f"llama.cpp cannot make {kind} of it ({last[0][:LONGEST_WORDS]})")
