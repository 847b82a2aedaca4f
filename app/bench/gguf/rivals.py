"""llama-cpp-python's own generation, as its users run it: plain, and with its prompt lookup."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

LOOKUP = "llama-cpp-python, prompt lookup"
PLAIN = "llama-cpp-python, plain"


@dataclass(frozen=True, slots=True)
class Timed:
    """The decoding of one answer: passes after the prompt, and their seconds."""

    ids: tuple[int, ...]
    seconds: float
    tokens: int  # that ``seconds`` were spent on

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0


class Runner(Protocol):
    """Answers one prompt greedily."""

    def answer(self, prompt: Sequence[int], tokens: int, stops: frozenset[int]) -> Timed:
        """At most ``tokens`` ids."""
        ...


class Rival:
    """One ``llama_cpp.Llama``. Its prompt lookup needs logits of all rows, which it keeps."""

    def __init__(self, file: Path, context: int, *, lookup: bool) -> None:
        """Load the file, all cores, as many tokens per pass as the own target."""
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        cores = os.cpu_count() or 1
        draft = LlamaPromptLookupDecoding() if lookup else None
        self._llama: Any = Llama(
            str(file), n_ctx=context, n_batch=256, n_threads=cores, n_threads_batch=cores,
            verbose=False, logits_all=lookup, draft_model=draft,
        )  # fmt: skip

    def answer(self, prompt: Sequence[int], tokens: int, stops: frozenset[int]) -> Timed:
        """The clock starts with the first token: the prompt's pass is not decoding."""
        ids: list[int] = []
        started = ended = 0.0
        for token in self._tokens(prompt):
            ended = time.perf_counter()
            started = started or ended
            if token in stops:
                break
            ids.append(token)
            if len(ids) == tokens:
                break
        return Timed(tuple(ids), ended - started, max(len(ids) - 1, 0))

    def close(self) -> None:
        """Give the memory back."""
        self._llama.close()

    def _tokens(self, prompt: Sequence[int]) -> Iterator[int]:
        found: Iterator[int] = self._llama.generate(
            list(prompt), temp=0.0, top_k=1, top_p=1.0, min_p=0.0, repeat_penalty=1.0
        )
        return found
