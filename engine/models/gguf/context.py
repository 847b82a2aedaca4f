"""One GGUF file and one llama.cpp context: rows in, logits rows out.

Uses llama.cpp's batch interface alone. Only rows with ``output`` get logits; the context is created
with the most that a pass may have, so its buffers never hold a row for every cached token.
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import Aborted, EngineError, ModelUnusable
from engine.models.gguf.cache import OWN_SEQUENCES, PADDING, LlamaCache
from engine.models.gguf.model import KV_TYPES, LlamaModel
from engine.platform.cores import usable_threads
from engine.platform.instructions import multiplies_bfloat16
from engine.platform.zero_pages import unmap_read, zeros_given_back
from engine.request import ModelSpec

MOST_OUTPUTS = 128  # logits rows of one decode; a larger tree takes several
CHECK_SECONDS = 0.005  # between two checks whether a decode is aborted
CACHE_BYTES = 2 << 30  # of keys and values, where the spec does not say how long a context is
MOST_SCORES = 64 << 20  # bytes of attention scores of one pass; above, flash attention is used
Q8_BLOCK = 32  # numbers of a q8_0 head come in whole blocks
KV_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
_NO_SLOT, _ABORTED = 1, 2


class CacheFull(EngineError):
    """No cells are left for the rows of a pass; nothing was changed."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One token of a pass, seen by every sequence of ``sequences``."""

    token: int
    position: int
    sequences: Sequence[int]
    output: bool = False


class LlamaContext:
    """A loaded file with one cache that all its sequences share."""

    own_sequences = OWN_SEQUENCES

    def __init__(self, spec: ModelSpec, sequences: int, model: LlamaModel | None = None) -> None:
        """Load ``spec.folder``; raises ModelUnusable with llama.cpp's last words."""
        self.model = model or LlamaModel(spec)
        self._api = api = self.model.api
        self.vocab, self.layers = self.model.vocab, self.model.layers
        self.parameters = self.model.parameters
        self._alike = self.model.library.attends_alike and _in_blocks(8, self.model)
        kinds = _cache_kinds(spec, self._alike, self.model)
        self.token_bytes = self._token_bytes(kinds[0].type)
        most = min(api.llama_max_parallel_sequences(), MOST_OUTPUTS)
        self.sequences = min(most - self.own_sequences, sequences)
        self.context, self.cells = self._sizes(spec)
        self.exact = False  # whether attention gives a row the same bits in every pass
        # llama.cpp ends the process where a pass may have fewer outputs than there are sequences
        self.batch = min(max(spec.batch, self.sequences + self.own_sequences), self.cells)
        self.outputs = min(MOST_OUTPUTS, self.batch)
        # where there is a GPU, buffers may be pinned: the system must not move them
        pageable = not api.llama_supports_gpu_offload()
        with zeros_given_back() if pageable else nullcontext():
            self._context = self._new_context(spec, kinds)
        place = Path(spec.folder).resolve()  # the hub's cache has links to files without an ending
        unmap_read(place.suffix or place.name)
        self.cache = self._new_cache()
        self._batch, self._columns = _new_batch(api, self.batch, self.sequences)
        self._place = 0
        self._first = self._rows = np.empty((0, self.vocab), np.float32)
        self._logits_at = _address_of(api.llama_get_logits)
        self._aborted: Callable[[], bool] = _never
        self._next = 0.0
        self._abort = api.ggml_abort_callback(self._ends)  # kept: C holds only the address
        self._unset = api.ggml_abort_callback()

    def close(self) -> None:
        """Give the memory back; the context cannot be used any more."""
        if self._context:
            self._api.llama_free(self._context)
            self.model.close()
            self._context = None

    def __del__(self) -> None:
        """Weights outside Python's heap go with their last reference."""
        if getattr(self, "_context", None):
            self.close()

    def decode(self, rows: Sequence[BatchRow]) -> NDArray[np.float32]:
        """Run at most ``batch`` rows; float32 logits [outputs, V] in their order.

        Raises CacheFull, Aborted, or EngineError for anything that llama.cpp refuses.
        """
        outputs = self._fill(rows)
        self._run_filled()
        for row in rows:
            self.cache.took(row.sequences)
        if not outputs:
            return self._rows[:0]
        self._view_logits()
        return self._rows[:outputs].copy()  # the next pass writes there

    def decode_one(self, token: int, position: int, sequence: int) -> NDArray[np.float32]:
        """``decode`` of one row with an output, for plain passes: making a ``BatchRow`` takes longer.

        The next pass overwrites what is returned.
        """
        columns = self._columns
        columns.tokens[0], columns.positions[0] = token, position
        columns.counts[0] = columns.outputs[0] = 1
        columns.sequences[0, 0] = sequence
        self._batch.n_tokens = 1
        self._run_filled()
        self.cache.took((sequence,))
        self._view_logits()
        return self._first

    def read(self, rows: Sequence[BatchRow], aborted: Callable[[], bool]) -> NDArray[np.float32]:
        """``decode`` of a prompt's rows; stops within one operation after ``aborted()`` is true.

        The callback costs a little at every operation, so passes that are not prompts go without.
        """
        self._aborted, self._next = aborted, 0.0
        self._api.llama_set_abort_callback(self._context, self._abort, None)
        try:
            return self.decode(rows)
        finally:
            self._api.llama_set_abort_callback(self._context, self._unset, None)
            self._aborted = _never

    def _ends(self, _: object) -> bool:
        now = perf_counter()
        if now < self._next:
            return False
        self._next = now + CHECK_SECONDS
        return self._aborted()

    def _run_filled(self) -> None:
        rows = self._batch.n_tokens
        code = _NO_SLOT
        if rows <= self.cache.room:
            code = self._api.llama_decode(self._context, self._batch)
        if code == _NO_SLOT:
            raise CacheFull(
                f"the cache of {self.cells} tokens has no room for {rows} more; "
                "run fewer conversations at once, or shorter ones"
            )
        if code == _ABORTED:
            raise Aborted("the pass was aborted")
        if code:
            raise EngineError(f"llama.cpp refused a pass of {rows} rows with code {code}")

    def _fill(self, rows: Sequence[BatchRow]) -> int:
        """Write the rows into the C batch; returns how many have an output."""
        columns, outputs = self._columns, 0
        for i, row in enumerate(rows):
            columns.tokens[i], columns.positions[i] = row.token, row.position
            columns.counts[i] = len(row.sequences)
            for place, sequence in enumerate(row.sequences):  # one: a slice takes longer
                columns.sequences[i, place] = sequence
            columns.outputs[i] = row.output
            outputs += row.output
        self._batch.n_tokens = len(rows)
        return outputs

    def _view_logits(self) -> None:
        """View the last pass's logits; they seldom move, and making a view takes as long as a copy."""
        place = self._logits_at(self._context)
        if place != self._place:
            self._place = place
            pointer = ctypes.cast(place, ctypes.POINTER(ctypes.c_float))
            self._rows = np.ctypeslib.as_array(pointer, (self.outputs, self.vocab))
            self._first = self._rows[:1]

    def _token_bytes(self, kv_type: str) -> int:
        """Keys and values of one token."""
        kv_heads = self._api.llama_model_n_head_kv(self.model.handle)
        values = self.layers * kv_heads * sum(self.model.head_widths)
        return max(int(values * KV_BYTES[kv_type]), 1)

    def _sizes(self, spec: ModelSpec) -> tuple[int, int]:
        """Tokens of one conversation, and cells of the cache that all share."""
        affordable = max(int(CACHE_BYTES / self.token_bytes), PADDING)
        context = min(spec.context or affordable, self.model.trained)
        together = min(spec.slots * context, max(context, affordable))
        cells = together + MOST_OUTPUTS  # for trees, after the conversations
        return context, cells + -cells % PADDING

    def _scores_are_small(self, spec: ModelSpec, kind: "CacheKind") -> bool:
        """Whether attention scores may be stored, which on a CPU is faster than flash attention.

        A row after 1000 tokens took 2 to 3 % less of a pass of 20 ms. A quantised cache needs flash.
        """
        heads = self._api.llama_model_n_head(self.model.handle)
        stored = self.cells * self.batch * heads * 4
        plain = kind.type in ("f32", "f16", "bf16")
        return plain and spec.gpu_layers == 0 and stored <= MOST_SCORES

    def _new_cache(self) -> LlamaCache:
        return LlamaCache(self._api, self._context, self.cells, self.sequences, self.model.window)

    def _parameters(self) -> Any:
        """llama.cpp's, with the size of the cache and the number of its sequences."""
        params = self._api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = self.cells, self.batch, self.batch
        params.n_seq_max = self.sequences + self.own_sequences
        params.kv_unified, params.swa_full = True, True
        return params

    def _new_context(self, spec: ModelSpec, kinds: Sequence["CacheKind"]) -> object:
        """A context with the first of these caches that llama.cpp can make for this model."""
        params = self._parameters()
        params.n_outputs_max = params.n_outputs_max_per_seq = self.outputs
        params.n_threads = params.n_threads_batch = spec.threads or usable_threads()
        params.no_perf = True
        for kind in kinds:
            params.type_k = params.type_v = KV_TYPES[kind.type]
            flash = (
                False if kind.flash is None and self._scores_are_small(spec, kind) else kind.flash
            )
            params.flash_attn_type = {None: -1, False: 0, True: 1}[flash]
            if context := self._api.llama_init_from_model(self.model.handle, params):
                alike = kind.type not in ("f32", "f16") or (kind.type == "f16" and self._alike)
                self.exact = bool(flash) and alike and not spec.gpu_layers
                return context
        reason = self.model.library.last_error()
        self.model.close()
        raise ModelUnusable(
            f"{spec.folder}: llama.cpp cannot make a context of {self.cells} tokens{reason}; "
            "ask for a shorter context"
        )


@dataclass(frozen=True, slots=True)
class CacheKind:
    """Numbers of a cache's keys and values, and whether llama.cpp's flash attention reads them."""

    type: str
    flash: bool | None  # None: where llama.cpp thinks it pays


def _cache_kinds(spec: ModelSpec, alike: bool, model: LlamaModel) -> tuple[CacheKind, ...]:  # noqa: FBT001 - a fact
    """What the spec asks for; where it is to be exact and says no more, the usual only as a last resort.

    On the processor, llama.cpp's flash attention sums each row alone and in order, except for float32
    and float16 keys; float16 is ``alike`` where set-up compiled it with a kernel of ours. Of sixteen rows that
    kernel reads the keys twice and not sixteen times: with AVX512-BF16, SmolLM2 takes 87 ms for 244 after 2048
    tokens, and for one row 18 for 22. Without it, bfloat16 is the faster one where the processor
    multiplies it. Others have 8 bits, which are slow after long texts.
    """
    usual = CacheKind(spec.kv_type or "f16", spec.flash_attention)
    if not spec.exact or spec.flash_attention is False or spec.gpu_layers:
        return (usual,)
    in_bytes = not multiplies_bfloat16() and _in_blocks(Q8_BLOCK, model)
    bits = "f16" if alike else "q8_0" if in_bytes else "bf16"
    return CacheKind(spec.kv_type or bits, flash=True), usual


def _in_blocks(size: int, model: LlamaModel) -> bool:
    """Whether a head's keys and values have a multiple of ``size`` numbers."""
    return all(width % size == 0 for width in model.head_widths)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The C batch's memory, row by row."""

    tokens: np.ndarray
    positions: np.ndarray
    counts: np.ndarray
    sequences: np.ndarray  # [rows, sequences]
    outputs: np.ndarray
    pointers: object  # one per row, into ``sequences``


def _new_batch(api: ModuleType, rows: int, sequences: int) -> tuple[ctypes.Structure, _Columns]:
    """A batch over memory of Python's own: nothing to free, columns written as arrays."""
    tokens, positions, counts = (np.zeros(rows, np.int32) for _ in range(3))
    wide, outputs = np.zeros((rows, sequences), np.int32), np.zeros(rows, np.int8)
    whole = ctypes.POINTER(ctypes.c_int32)
    pointers = (whole * rows)(*(row.ctypes.data_as(whole) for row in wide))
    batch: ctypes.Structure = api.llama_batch(
        n_tokens=0,
        token=tokens.ctypes.data_as(whole),
        embd=None,
        pos=positions.ctypes.data_as(whole),
        n_seq_id=counts.ctypes.data_as(whole),
        seq_id=ctypes.cast(pointers, ctypes.POINTER(whole)),
        logits=outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
    )
    return batch, _Columns(tokens, positions, counts, wide, outputs, pointers)


def _address_of(function: object) -> Callable[[object], int]:
    """``function`` of a context, its pointer returned as a number: an object takes 10 us to make."""
    code = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
    made: Callable[[object], int] = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(code)  # type: ignore[arg-type]
    return made


def _never() -> bool:
    return False
