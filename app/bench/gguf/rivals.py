"""llama-cpp-python's own generation, as its users run it: plain, and with its prompt lookup."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.errors import ModelUnusable
from engine.models.gguf.library import llama_library
from engine.platform.toolchain import REBUILD

LOOKUP = "llama-cpp-python, prompt lookup"
PLAIN = "llama-cpp-python, plain"


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of an answer."""

    ids: tuple[int, ...]
    seconds: float
    tokens: int  # that ``seconds`` were spent on: a stop token is decoded too


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, and what kind of task the app takes it for."""

    ids: tuple[int, ...]
    task: str


class Runner(Protocol):
    """Answers one prompt greedily, a pass at a time."""

    def steps(self, question: Question, most: int, stops: frozenset[int]) -> Iterator[Step]:
        """Passes until a stop token or ``most`` tokens; reading the prompt is not timed."""
        ...


class Rival:
    """One ``llama_cpp.Llama``. Its prompt lookup needs logits of all rows, which it keeps."""

    def __init__(self, file: Path, context: int, *, lookup: bool) -> None:
        """Load the file, all cores, as many tokens per pass as the own target."""
        if compiler := llama_library().amx_left_out_by:
            raise ModelUnusable(
                f"llama-cpp-python's own generation would end this process: {compiler} left AMX's "
                f"set-up out of it; first run: {REBUILD}"
            )
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        cores = os.cpu_count() or 1
        draft = LlamaPromptLookupDecoding() if lookup else None
        self._llama: Any = Llama(
            str(file), n_ctx=context, n_batch=256, n_threads=cores, n_threads_batch=cores,
            verbose=False, logits_all=lookup, draft_model=draft,
        )  # fmt: skip

    def steps(self, question: Question, most: int, stops: frozenset[int]) -> Iterator[Step]:
        """The pass that reads the prompt gives the first token too, so that one is not timed."""
        found: Iterator[int] = self._llama.generate(
            list(question.ids), temp=0.0, top_k=1, top_p=1.0, min_p=0.0, repeat_penalty=1.0
        )
        for number in range(most):
            started = time.perf_counter()
            token = next(found)
            seconds = time.perf_counter() - started if number else 0.0
            ends = token in stops
            yield Step(() if ends else (token,), seconds, min(number, 1))
            if ends:
                return

    def close(self) -> None:
        """Give the memory back."""
        self._llama.close()
