"""llama-cpp-python's own generation, as its users run it: plain, and with its prompt lookup."""

import os
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

from app.bench.measure import Pass, RunStep, Sample, Turn
from engine.errors import ModelUnusable
from engine.models.gguf.library import llama_library
from engine.platform.toolchain import REBUILD
from engine.request import GenerationRequest, Stats

LOOKUP = "llama-cpp-python, prompt lookup"
PLAIN = "llama-cpp-python, plain"


class LlamaCppRunner:
    """One ``llama_cpp.Llama``. Its prompt lookup needs logits of all rows, which it keeps."""

    def __init__(
        self, file: Path, context: int, request: GenerationRequest, *, lookup: bool
    ) -> None:
        """Load the file, all cores, as many tokens per pass as the own target; answers are greedy."""
        if compiler := llama_library().amx_left_out_by:
            raise ModelUnusable(
                f"llama-cpp-python's own generation would end this process: {compiler} left AMX's "
                f"set-up out of it; first run: {REBUILD}"
            )
        from llama_cpp import Llama
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        cores = os.cpu_count() or 1
        draft = LlamaPromptLookupDecoding() if lookup else None
        self._request = request
        self._llama: Any = Llama(
            str(file), n_ctx=context, n_batch=256, n_threads=cores, n_threads_batch=cores,
            verbose=False, logits_all=lookup, draft_model=draft,
        )  # fmt: skip

    async def run(self, turn: Turn) -> AsyncGenerator[RunStep, None]:
        """See ``Runner``; the pass that reads the prompt gives the first token, which is not timed."""
        [prompt] = turn.prompts
        yield None
        found: Iterator[int] = self._llama.generate(
            list(prompt.ids), temp=0.0, top_k=1, top_p=1.0, min_p=0.0, repeat_penalty=1.0
        )
        ids: list[int] = []
        timed, seconds, reading = -1, 0.0, 0.0
        while timed + 1 < self._request.max_tokens:
            started = time.perf_counter()
            token = next(found)
            took = time.perf_counter() - started
            timed += 1
            seconds, reading = (seconds + took, reading) if timed else (0.0, took)
            ends = token in self._request.stop_tokens
            ids += () if ends else (token,)
            yield Pass(reading + seconds, int(not ends))
            if ends:
                break
        stats = Stats(
            drafter=turn.lane.drafter, why="", prompt_tokens=len(prompt.ids), cached_tokens=0,
            emitted=len(ids), passes=timed, drafted=0, accepted=0, depths=(),
            prompt_seconds=reading, decode_seconds=seconds,
        )  # fmt: skip
        yield Sample(
            turn.lane.name, prompt.number, turn.group, turn.repeat, tuple(ids), stats, seconds, timed
        )  # fmt: skip

    def close(self) -> None:
        """Give the memory back."""
        self._llama.close()
