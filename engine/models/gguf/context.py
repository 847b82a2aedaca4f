"""One GGUF file and one llama.cpp context: rows in, logits rows out, sequence operations between.

Driven through llama.cpp's batch interface alone. Logits exist only for the rows that are asked for;
the context is told at most how many, so its buffers never hold a row for every cached token.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from engine.errors import Aborted, EngineError, ModelUnusable
from engine.models.gguf.library import Library, llama_library
from engine.platform.batch_padding import choose_company
from engine.request import ModelSpec

MOST_OUTPUTS = 128  # logits rows of one decode; a larger tree takes several
ASK_SECONDS = 0.005  # between two questions whether a decode shall end early
PADDING = 256  # llama.cpp rounds a cache up to this many cells
CACHE_BYTES = 2 << 30  # of keys and values, where the spec does not say how long a context is
MOST_SCORES = (
    64 << 20
)  # bytes of attention scores of one pass; beyond, flash attention computes them
KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}  # name -> ggml's number
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

    def __init__(self, spec: ModelSpec, sequences: int) -> None:
        """Load ``spec.folder``; raises ModelUnusable with llama.cpp's last words."""
        self._library = llama_library()
        self._api = api = self._library.api
        self._library.errors.clear()
        self._model = _load_model(self._library, spec)
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self.layers = api.llama_model_n_layer(self._model)
        self.parameters = api.llama_model_n_params(self._model)
        self.token_bytes = self._token_bytes(spec)
        self.context, self.cells = self._sizes(spec)
        self.sequences = min(sequences, api.llama_max_parallel_sequences() - 1, MOST_OUTPUTS - 1)
        self.company: dict[int, int] = {}  # rows of a pass -> rows that run beside it
        # llama.cpp ends the process where a pass may have fewer outputs than there are sequences
        self.batch = min(max(spec.batch, self.sequences + 1), self.cells)
        self.outputs = min(MOST_OUTPUTS, self.batch)
        self._context = self._new_context(spec)
        self._memory = api.llama_get_memory(self._context)
        self._batch, self._columns = _new_batch(api, self.batch, self.sequences)
        self._place = 0
        self._first = self._rows = np.empty((0, self.vocab), np.float32)
        self._logits_at = _address_of(api.llama_get_logits)
        self._asked: Callable[[], bool] = _never
        self._next = 0.0
        self._abort = api.ggml_abort_callback(self._ends)  # kept: C holds only the address
        self._unset = api.ggml_abort_callback()

    def close(self) -> None:
        """Give the memory back; the context cannot be used any more."""
        if self._context:
            self._api.llama_free(self._context)
            self._api.llama_model_free(self._model)
            self._context = self._model = None

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
        if not outputs:
            return self._rows[:0]
        self._look()
        return self._rows[:outputs].copy()  # the next pass writes there

    def decode_one(self, token: int, position: int, sequence: int) -> NDArray[np.float32]:
        """``decode`` of one row with an output, for plain rounds: making a ``BatchRow`` takes longer."""
        columns = self._columns
        columns.tokens[0], columns.positions[0] = token, position
        columns.counts[0] = columns.outputs[0] = 1
        columns.sequences[0, 0] = sequence
        self._batch.n_tokens = 1
        self._run_filled()
        self._look()
        return self._first.copy()

    def read(self, rows: Sequence[BatchRow], asked: Callable[[], bool]) -> None:
        """``decode`` of rows without outputs that ends within one operation after ``asked()``.

        The callback costs a little at every operation, so passes that are not prompts go without.
        """
        self._asked, self._next = asked, 0.0
        self._api.llama_set_abort_callback(self._context, self._abort, None)
        try:
            self.decode(rows)
        finally:
            self._api.llama_set_abort_callback(self._context, self._unset, None)
            self._asked = _never

    def choose_company(self) -> None:
        """Measure which passes run faster with more rows beside them; the cache must be empty."""
        self.company = choose_company(self._timed)

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """``target`` also sees the cells of ``source`` at positions [start, stop)."""
        self._api.llama_memory_seq_cp(self._memory, source, target, start, stop)

    def state(self, sequence: int) -> NDArray[np.uint8]:
        """Bytes of the cells of a sequence; they stay as they are."""
        size = self._api.llama_state_seq_get_size(self._context, sequence)
        state = np.empty(size, np.uint8)
        self._api.llama_state_seq_get_data(self._context, _first_byte(state), size, sequence)
        return state

    def restore(self, sequence: int, state: NDArray[np.uint8]) -> bool:
        """The sequence gets cells with these bytes in place of those that it has; False: it has none.

        llama.cpp wants as many free ones in a row.
        """
        place = _first_byte(state)
        return bool(self._api.llama_state_seq_set_data(self._context, place, len(state), sequence))

    def clear(self) -> None:
        """Every cell is empty again, its bytes too."""
        self._api.llama_memory_clear(self._memory, True)  # noqa: FBT003 - C knows no names

    def remove(self, sequence: int, start: int = 0) -> None:
        """The sequence no longer sees positions from ``start`` on."""
        self._api.llama_memory_seq_rm(self._memory, sequence, start or -1, -1)

    def _ends(self, _: object) -> bool:
        now = perf_counter()
        if now < self._next:
            return False
        self._next = now + ASK_SECONDS
        return self._asked()

    def _timed(self, rows: int, beside: int) -> float:
        """Seconds of a pass of so many rows with so many beside them."""
        self.company = {rows: beside}
        started = perf_counter()
        self.decode([BatchRow(0, place, (0,), output=True) for place in range(rows)])
        seconds = perf_counter() - started
        self.remove(0)
        return seconds

    def _run_filled(self) -> None:
        rows = self._batch.n_tokens
        beside = min(self.company.get(rows, 0), self.batch - rows)
        code = self._run_beside(rows, beside) if beside else self._run()
        if code == _NO_SLOT:
            raise CacheFull(
                f"the cache of {self.cells} tokens has no room for {rows} more; "
                "run fewer conversations at once, or shorter ones"
            )
        if code == _ABORTED:
            raise Aborted("the pass was asked to end")
        if code:
            raise EngineError(f"llama.cpp refused a pass of {rows} rows with code {code}")

    def _run(self) -> int:
        code: int = self._api.llama_decode(self._context, self._batch)
        return code

    def _run_beside(self, rows: int, beside: int) -> int:
        """The rows and others, of a sequence that is empty before and after."""
        company, more = self.sequences, slice(rows, rows + beside)
        columns = self._columns
        columns.tokens[more] = columns.outputs[more] = 0
        columns.positions[more], columns.counts[more] = range(beside), 1
        columns.sequences[more, 0] = company
        self._batch.n_tokens = rows + beside
        code = self._run()
        if code == _NO_SLOT:  # the last cells are left
            self._batch.n_tokens = rows
            return self._run()
        self.remove(company)
        return code

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

    def _look(self) -> None:
        """Views of the last pass's logits; they seldom move, and a view takes as long as a copy."""
        place = self._logits_at(self._context)
        if place != self._place:
            self._place = place
            pointer = ctypes.cast(place, ctypes.POINTER(ctypes.c_float))
            self._rows = np.ctypeslib.as_array(pointer, (self.outputs, self.vocab))
            self._first = self._rows[:1]

    def _token_bytes(self, spec: ModelSpec) -> int:
        """Keys and values of one token."""
        api, model = self._api, self._model
        heads, kv_heads = api.llama_model_n_head(model), api.llama_model_n_head_kv(model)
        usual = api.llama_model_n_embd(model) // max(heads, 1)
        widths = [self._told(f"attention.{part}_length", usual) for part in ("key", "value")]
        return max(int(self.layers * kv_heads * sum(widths) * KV_BYTES[spec.kv_type]), 1)

    def _told(self, name: str, otherwise: int) -> int:
        """A whole number that the file tells of its architecture."""
        found = _metadata(self._api, self._model, "general.architecture")
        number = _metadata(self._api, self._model, f"{found}.{name}")
        return int(number) if number.isdigit() else otherwise

    def _sizes(self, spec: ModelSpec) -> tuple[int, int]:
        """Tokens of one conversation, and cells of the cache that all share."""
        trained = self._api.llama_model_n_ctx_train(self._model)
        affordable = max(int(CACHE_BYTES / self.token_bytes), PADDING)
        context = min(spec.context or affordable, trained)
        together = min(spec.slots * context, max(context, affordable))
        cells = together + MOST_OUTPUTS  # trees stand behind the conversations
        return context, cells + -cells % PADDING

    def _scores_are_small(self, spec: ModelSpec) -> bool:
        """Whether attention scores may be stored, which on a CPU is faster than flash attention.

        A row behind 1000 tokens took 2 to 3 % less of a pass of 20 ms. A compact cache needs flash.
        """
        stored = self.cells * self.batch * self._api.llama_model_n_head(self._model) * 4
        plain = spec.kv_type in ("f32", "f16", "bf16")
        return plain and spec.gpu_layers == 0 and stored <= MOST_SCORES

    def _new_context(self, spec: ModelSpec) -> object:
        params = self._api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = self.cells, self.batch, self.batch
        params.n_seq_max, params.kv_unified, params.swa_full = self.sequences + 1, True, True
        params.n_outputs_max = params.n_outputs_max_per_seq = self.outputs
        params.n_threads = params.n_threads_batch = spec.threads or os.cpu_count() or 1
        params.type_k = params.type_v = KV_TYPES[spec.kv_type]
        flash = spec.flash_attention
        if flash is None and self._scores_are_small(spec):
            flash = False
        params.flash_attn_type = {None: -1, False: 0, True: 1}[flash]
        params.no_perf = True
        context = self._api.llama_init_from_model(self._model, params)
        if not context:
            said = self._library.said()
            self._api.llama_model_free(self._model)
            raise ModelUnusable(
                f"{spec.folder}: llama.cpp cannot make a context of {self.cells} tokens{said}; "
                "ask for a shorter context"
            )
        return context


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


def _first_byte(state: NDArray[np.uint8]) -> object:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def _never() -> bool:
    return False


def _metadata(api: ModuleType, model: object, key: str) -> str:
    """A value of the file's as text; empty where it has none."""
    text = ctypes.create_string_buffer(256)
    api.llama_model_meta_val_str(model, key.encode(), text, len(text))
    return text.value.decode(errors="replace")


def _load_model(library: Library, spec: ModelSpec) -> object:
    api = library.api
    if spec.kv_type not in KV_TYPES:
        raise ModelUnusable(
            f"kv_type {spec.kv_type!r} is not supported; choose {', '.join(KV_TYPES)}"
        )
    if spec.gpu_layers and not api.llama_supports_gpu_offload():
        raise ModelUnusable(
            f"{spec.gpu_layers} layers were to run on a GPU, but this build of llama.cpp has no GPU "
            "support; install one that has, or ask for 0"
        )
    params = library.model_parameters()
    params.n_gpu_layers = spec.gpu_layers
    model = api.llama_model_load_from_file(os.fsencode(spec.folder), params)
    if not model:
        raise ModelUnusable(f"{spec.folder} cannot be loaded{library.said()}; get the file again")
    if api.llama_model_has_encoder(model) or api.llama_model_is_diffusion(model):
        obstacle = "it is no causal language model"
    elif api.llama_model_is_recurrent(model) or api.llama_model_is_hybrid(model):
        obstacle = "its recurrent layers cannot forget a refused draft"
    else:
        return model
    api.llama_model_free(model)
    raise ModelUnusable(f"{spec.folder} cannot be run: {obstacle}; choose another model")
