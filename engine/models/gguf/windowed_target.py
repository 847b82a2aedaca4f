"""The GGUF target of models with sliding windows where memory is short: windows and checkpoints.

Layers with windows keep what they see and one pass more, so a draft is taken back at once, and a conversation
to a message before its window through a checkpoint, or else it is read again. Branches share no cells.
"""

from collections.abc import Sequence

from typing_extensions import override

from engine.interfaces.target import Capability
from engine.models.gguf.recurrent_passes import Part
from engine.models.gguf.recurrent_target import ALONE, RecurrentTarget
from engine.models.gguf.windowed_context import WindowedContext

CHAINS = (
    "layers of this model keep no more than their window, which follows one text and no branches"
)


class WindowedTarget(RecurrentTarget):
    """A target over one GGUF file with sliding windows."""

    context_of = WindowedContext

    @override
    def refuses(self, needs: frozenset[Capability]) -> str:
        if self._passes.most_rows == 1:
            return ALONE
        return CHAINS if Capability.TREE in needs else ""

    @override
    def _extend(self, slot: int, tokens: Sequence[int]) -> None:
        """Passes make checkpoints by themselves, whenever they move a window."""
        for at in range(0, len(tokens), self.llama.batch):
            part = tokens[at : at + self.llama.batch]
            self._passes.run([Part(slot, part, 0)], self._abort)
            self._slots[slot].committed += part

    @override
    def _take_all_back(self, running: Sequence[int]) -> None:
        """A pass of others leaves a window as it is."""
