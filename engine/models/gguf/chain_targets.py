"""The GGUF targets whose drafts are chains: over running states, and over sliding windows alone."""

from collections.abc import Sequence

from typing_extensions import override

from engine.interfaces.target import Capability
from engine.models.gguf.checkpointed_target import CheckpointedTarget
from engine.models.gguf.recurrent_context import RecurrentContext
from engine.models.gguf.windowed_context import WindowedContext

UNKNOWN = "its header does not tell what running state it keeps, so nothing can be taken back"


class RecurrentTarget(CheckpointedTarget):
    """A target over one GGUF file with running states: hybrids and recurrent models.

    Where llama.cpp keeps the states of a pass's last rows, too, a draft is taken back once.
    """

    context_of = RecurrentContext
    chains = "layers of this model keep a running state, which follows one text at a time and no branches"
    marks_chunks = True

    @override
    def refuses(self, needs: frozenset[Capability]) -> str:
        return super().refuses(needs) if self.llama.shape.state else UNKNOWN

    @override
    def _take_all_back(self, running: Sequence[int]) -> None:
        """Of the slots that do not run: llama.cpp may move their states, without those of earlier rows."""
        for slot in self._turns:
            if slot not in running:
                self._settle(slot)
                self._slots[slot].reach = 0


class WindowedTarget(CheckpointedTarget):
    """A target over one GGUF file with sliding windows, where memory is short.

    Layers with windows keep what they see and one pass more, so a draft is taken back at once, and a
    conversation to a message before its window through a checkpoint, or else it is read again.
    """

    context_of = WindowedContext
    chains = "layers of this model keep no more than their window, which follows one text and no branches"
    marks_chunks = False  # a pass makes one by itself, whenever it moves a window

    @override
    def _take_all_back(self, running: Sequence[int]) -> None:
        """A pass of others leaves a window as it is."""
