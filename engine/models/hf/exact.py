"""The target over a model of the transformers library whose drafted rows have plain ones' bits."""

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from engine.interfaces.target import Capability, Scores
from engine.models.hf.model import Block, CausalModel
from engine.models.hf.target import Abilities, Closeness, CroppedHfTarget, HeldRows
from engine.platform.device_memory import out_of_memory_as_ours
from engine.speculation.tree import DraftTree, chain

# Kernels choose their way by the shape: SmolLM2 in bfloat16, two cores, gives rows of a pass other bits
# than plain ones' (up to 0.97 in the logits), and the same ones in passes of one shape. 8 rows took
# 0.91 to 1.02 passes of one; of 16, the last 8 had other bits.
SAME_ROWS, SAME_KEYS = 8, 64
ONLY_CHAINS = "rows of a tree would not have the bits of plain ones, which exact asks for"


class ExactHfTarget(CroppedHfTarget):
    """One that scores rows in passes of one shape, over whole blocks of keys: so all have plain's bits.

    In a tree the keys of refused siblings stand between those of a row, whose sum then runs otherwise.
    """

    sums_alike = True

    def __init__(self, model: CausalModel, context: int, abilities: Abilities) -> None:
        super().__init__(model, context, abilities)
        self.offers = frozenset()

    @override
    def refuses(self, needs: frozenset[Capability]) -> str:
        return ONLY_CHAINS if Capability.TREE in needs else ""

    @property
    @override
    def row_blocks(self) -> Sequence[int]:
        return SAME_ROWS + 1, 2 * SAME_ROWS + 1

    @override
    @torch.inference_mode()
    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        """Logits [N, V] of every node of each chain, after its slot's prefix."""
        found = []
        for slot, tree in zip(slots, trees, strict=True):
            row = self._slot(slot)
            self._take_back(row, 0)
            row.cache.block = SAME_KEYS
            try:
                with out_of_memory_as_ours(self.model.device):
                    found.append(Scores(self._in_one_shape(row, tree.tokens)))
            finally:
                row.cache.block = 1
        return found

    def _in_one_shape(self, row: HeldRows, tokens: Sequence[int]) -> Tensor:
        """Logits [n, V] of rows that continue the prefix, in passes that are filled up."""
        logits = []
        for start in range(0, len(tokens), SAME_ROWS):
            part = list(tokens[start : start + SAME_ROWS])
            at = len(row.committed) + start
            end = at + SAME_ROWS
            place = Block(at, len(part), SAME_ROWS, end + -end % SAME_KEYS)
            filled = [*part, *[part[-1]] * (SAME_ROWS - len(part))]
            ran = self.model.run(filled, row.cache, place, last=SAME_ROWS, hidden=False)
            row.cache.cut(at + len(part))
            row.pending += part
            logits.append(ran.logits[: len(part)])
        return torch.cat(logits)


def exact_target(model: CausalModel, context: int, abilities: Abilities) -> ExactHfTarget | None:
    """The target over a model that scores trees; None where blocks of keys change its logits."""
    ids = [(7 * i + 3) % int(model.config.vocab_size) for i in range(SAME_ROWS + 5)]
    target = ExactHfTarget(model, context, abilities)
    target.feed(0, ids[:3])
    [scores] = target.score([0], [chain(ids[3:])])
    target.crop(0, 0)
    return target if Closeness(model).to_plain(scores.logits, ids) else None
