"""A llama.cpp context of a model with running states: a cache and a state for each sequence of its own."""

from pathlib import Path
from typing import Any

from typing_extensions import override

from engine.models.gguf.cache import PADDING
from engine.models.gguf.context import CACHE_BYTES, KV_BYTES, MOST_OUTPUTS, LlamaContext
from engine.models.gguf.header import read_parts
from engine.models.gguf.model import LlamaModel
from engine.models.gguf.recurrent_cache import Checkpoint, RecurrentCache
from engine.models.gguf.state_shape import StateShape, state_shape
from engine.request import ModelSpec


class RecurrentContext(LlamaContext):
    """Its sequences share no cells, so each one's stay in the order of its positions by themselves."""

    own_sequences = 0
    cache: RecurrentCache  # type: ignore[assignment]  # the same calls over other memory

    def __init__(self, spec: ModelSpec, sequences: int, model: LlamaModel | None = None) -> None:
        """Load ``spec.folder``; raises ModelUnusable with llama.cpp's last words."""
        self.shape = self._shape(spec)
        super().__init__(spec, sequences, model)
        # rows that can be taken back after a pass of more; 0: this model's states cannot go back
        self.rollback = int(self._api.llama_n_rs_seq(self._context))

    @property
    def longest(self) -> int:
        """Cells of one sequence."""
        return int(self.cells // self.sequences)

    def reach(self, sequence: int, run: int, rows: int) -> int:
        """How many of its ``run`` rows a sequence can take back after a pass of so many."""
        del sequence, run
        return min(rows - 1, self.rollback)

    def make_room(self, sequence: int, run: int, rows: int) -> Checkpoint | None:
        """Before a pass of so many rows of a sequence: a checkpoint, where one was made on the way."""
        del sequence, run, rows
        return None

    def _shape(self, spec: ModelSpec) -> StateShape:
        return state_shape(read_parts(Path(spec.folder))) or StateShape(0, 0)

    @override
    def _token_bytes(self, kv_type: str) -> int:
        if not self.shape.state:  # of a kind that its header does not tell
            return super()._token_bytes(kv_type)
        return max(int(self.shape.cached * KV_BYTES[kv_type]), 1)

    @override
    def _sizes(self, spec: ModelSpec) -> tuple[int, int]:
        affordable = max(CACHE_BYTES // (self.token_bytes * self.sequences), PADDING)
        context = min(spec.context or affordable, self.model.trained)
        each = context + MOST_OUTPUTS  # for drafts, after the conversation
        return context, self.sequences * (each + -each % PADDING)

    @override
    def _new_cache(self) -> RecurrentCache:  # type: ignore[override]
        return RecurrentCache(self._api, self._context)

    @override
    def _parameters(self) -> Any:
        params = super()._parameters()
        params.kv_unified = False
        # llama.cpp needs a pass to have more rows than that, and clears it where a model cannot go back
        params.n_rs_seq = min(self.shape.rollback, self.batch - 2)
        return params
