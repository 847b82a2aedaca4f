"""A llama.cpp context whose layers with sliding windows keep no more than these see."""

from pathlib import Path
from typing import Any

from typing_extensions import override

from engine.errors import EngineError, ModelUnusable
from engine.models.gguf.asked import Windows, windows_of
from engine.models.gguf.cache import PADDING
from engine.models.gguf.context import KV_BYTES
from engine.models.gguf.header import read_header
from engine.models.gguf.recurrent_cache import Checkpoint, RecurrentCache
from engine.models.gguf.recurrent_context import RecurrentContext
from engine.models.gguf.state_shape import StateShape
from engine.request import ModelSpec


class WindowedCache(RecurrentCache):
    """Sequences of which some layers have only the last cells; those lie in the order of positions."""

    def __init__(self, api: Any, context: object, window: int) -> None:
        super().__init__(api, context)
        self._window = window
        self._starts: dict[int, int] = {}  # sequence -> the position of its first narrow cell

    def start(self, sequence: int) -> int:
        """The first position that layers with windows still have."""
        return self._starts.get(sequence, 0)

    def shortest(self, sequence: int) -> int:
        """Tokens of the shortest conversation to which the sequence can be cut."""
        start = self.start(sequence)
        return start + self._window - 1 if start else 0

    @override
    def remove(self, sequence: int) -> None:
        super().remove(sequence)
        self._starts.pop(sequence, None)

    @override
    def restore(self, sequence: int, saved: Checkpoint) -> bool:
        if not super().restore(sequence, saved):
            return False
        self._starts[sequence] = max(self._api.llama_memory_seq_pos_min(self._memory, sequence), 0)
        return True

    @override
    def clear(self) -> None:
        super().clear()
        self._starts.clear()


class WindowedContext(RecurrentContext):
    """Each sequence has cells for its whole text, and others for a window and one more pass.

    llama.cpp would go around in the latter. Attention adds up in the order of cells, so after a refused draft at
    the turn, later tokens had other bits than in plain decoding. So before they are full, the window is saved
    and brought back to their beginning: that is a checkpoint, too. Of Gemma 3 270M it takes 4 ms for 256 tokens.
    """

    cache: WindowedCache  # the same calls over other memory
    windows: Windows

    def __init__(self, spec: ModelSpec, sequences: int, model: Any = None) -> None:
        """Load ``spec.folder``; raises ModelUnusable with llama.cpp's last words."""
        super().__init__(spec, sequences, model)
        self.rollback = self.batch  # as far as a pass goes, whatever it has
        longest = min(self.longest, self.model.window + self.batch)
        self.narrow_cells = longest + -longest % PADDING

    @override
    def reach(self, sequence: int, run: int, rows: int) -> int:
        return max(run - self.cache.shortest(sequence), 0)

    @override
    def make_room(self, sequence: int, run: int, rows: int) -> Checkpoint | None:
        if run - self.cache.start(sequence) + rows <= self.narrow_cells:
            return None
        saved = self.cache.save(sequence, run, whole=False)
        if saved is None or not self.cache.restore(sequence, saved):
            raise EngineError(
                f"llama.cpp could not move the last {self.model.window} tokens of a conversation; "
                "ask again"
            )
        return saved

    @override
    def _shape(self, spec: ModelSpec) -> StateShape:
        found = windows_of(read_header(Path(spec.folder)))
        if found is None:
            raise ModelUnusable(
                f"{spec.folder}: llama.cpp does not tell which of its layers have windows; "
                "ask for the full cache"
            )
        self.windows = found
        return StateShape(found.wide, 0)

    @override
    def _token_bytes(self, kv_type: str) -> int:
        window = int(self.windows.tokens * self.windows.narrow * KV_BYTES[kv_type])
        self.shape = StateShape(self.windows.wide, window)
        return super()._token_bytes(kv_type)

    @override
    def _new_cache(self) -> WindowedCache:  # type: ignore[override]
        return WindowedCache(self._api, self._context, self.model.window)

    @override
    def _parameters(self) -> Any:
        params = super()._parameters()
        params.swa_full, params.n_rs_seq = False, 0
        return params
