"""Libraries of the race, as their users run them; each is loaded in a process of its own."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from app.bench.peers.child import Answers
from app.bench.peers.program import Chunk, Question
from engine.errors import ModelUnusable
from engine.models.gguf.library import llama_library
from engine.platform.cores import usable_threads
from engine.platform.toolchain import REBUILD

PLAIN, LOOKUP, ASSISTED = "plain", "prompt lookup", "assisted"
LOOKED_UP = 10  # tokens that a match drafts, as in transformers' documentation


def load_llama_cpp(file: Path, context: int, mode: str) -> Answers:
    """llama-cpp-python's generation; its prompt lookup needs logits of all rows, which it keeps."""
    if compiler := llama_library().amx_left_out_by:
        raise ModelUnusable(
            f"llama-cpp-python's own generation would end its process: {compiler} left AMX's "
            f"set-up out of it; first run: {REBUILD}"
        )
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    draft = LlamaPromptLookupDecoding() if mode == LOOKUP else None
    llama: Any = Llama(
        str(file), n_ctx=context, n_threads=usable_threads(), n_threads_batch=usable_threads(), verbose=False,
        logits_all=mode == LOOKUP, draft_model=draft,
    )  # fmt: skip

    def answers(_mode: str, question: Question) -> Iterator[Chunk]:
        llama.reset()
        found = llama.generate(
            list(question.ids), temp=0.0, top_k=1, top_p=1.0, min_p=0.0, repeat_penalty=1.0
        )
        for _, token in zip(range(question.max_tokens), found, strict=False):
            if token in question.stop_tokens:
                yield Chunk((), stopped=True)
                return
            yield Chunk((token,))

    return answers


def load_transformers(folder: Path, draft: Path | None, dtype: str) -> Answers:
    """transformers' generation with a folder in this number format, and its draft model."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(usable_threads())

    def loaded(place: Path) -> Any:
        return AutoModelForCausalLM.from_pretrained(place, dtype=dtype)

    model, assistant = loaded(folder), None if draft is None else loaded(draft)
    options: dict[str, dict[str, Any]] = {
        PLAIN: {},
        LOOKUP: {"prompt_lookup_num_tokens": LOOKED_UP},
        ASSISTED: {"assistant_model": assistant},
    }

    def answers(mode: str, question: Question) -> Iterator[Chunk]:
        stream = _Stream()
        ids = torch.tensor([question.ids])
        asked = {
            "input_ids": ids, "attention_mask": torch.ones_like(ids), "do_sample": False,
            "max_new_tokens": question.max_tokens, "streamer": stream,
            "eos_token_id": sorted(question.stop_tokens), **options[mode],
        }  # fmt: skip
        thread = Thread(target=_generate, args=(model, asked, stream), daemon=True)
        thread.start()
        yield from _chunks(stream, question.stop_tokens)
        thread.join()

    return answers


class _Stream:
    """What transformers calls a streamer: it gets the prompt, then tokens as they are decided."""

    def __init__(self) -> None:
        self.items: SimpleQueue[list[int] | Exception | None] = SimpleQueue()
        self._prompt_came = False

    def put(self, value: Any) -> None:
        """Token ids, of one answer."""
        if self._prompt_came:
            self.items.put(value.flatten().tolist())
        self._prompt_came = True

    def end(self) -> None:
        """The answer ended."""
        self.items.put(None)


def _generate(model: Any, asked: dict[str, Any], stream: _Stream) -> None:
    import torch

    try:
        with torch.inference_mode():
            model.generate(**asked)
    except Exception as error:  # noqa: BLE001 - raised again in the thread that reads the answer
        stream.items.put(error)


def _chunks(stream: _Stream, stop_tokens: frozenset[int]) -> Iterator[Chunk]:
    while (item := stream.items.get()) is not None:
        if isinstance(item, Exception):
            raise item
        kept = tuple(token for token in item if token not in stop_tokens)
        yield Chunk(kept, stopped=len(kept) < len(item))
