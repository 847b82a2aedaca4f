"""The target over a model of the transformers library whose drafted rows have plain ones' bits."""

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from engine.interfaces.target import Capability
from engine.models.hf.model import Block, CausalModel, PassResult
from engine.models.hf.target import Abilities, Closeness, CroppedHfTarget, HeldRows
from engine.platform.device_memory import out_of_memory_as_ours
from engine.speculation.tree import DraftTree, chain

# Kernels choose their way by the shape: SmolLM2 in bfloat16, two cores, gives rows of a pass other bits
# than plain ones' (up to 0.97 in the logits), and the same ones in passes of one shape. 8 rows took
# 0.91 to 1.02 passes of one; of 16, the last 8 had other bits.
SAME_ROWS, SAME_KEYS = 8, 64
# A prompt is read in whole blocks, its end in smaller ones, all at multiples of their rows: where it was
# cut then changes nothing. 64 rows at a time alone took 1.8 times as long as 256.
READ_BLOCK, READ_ROWS = 256, 64
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
    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """Commit tokens: a prompt chunk. A block that was read in part is read again, as if at once."""
        length = self.length(slot)
        again = self.tokens(slot)[length - length % READ_BLOCK :]
        self.crop(slot, length - len(again))
        super().feed(slot, [*again, *tokens])

    @override
    def _logits(self, row: HeldRows, tree: DraftTree) -> Tensor:
        row.pending += tree.tokens
        at = len(row.committed)
        with out_of_memory_as_ours(self.model.device):
            parts = self._filled_up(row, at, tree.tokens, SAME_ROWS, last=SAME_ROWS)
        return torch.cat(parts)

    @override
    def _fresh(self) -> HeldRows:
        held = super()._fresh()
        held.cache.block = SAME_KEYS
        return held

    @override
    def _run_straight(
        self, row: HeldRows, tokens: Sequence[int], last: int, *, hidden: bool
    ) -> PassResult:
        """Rows of a prompt."""
        at, whole = len(row.committed), len(tokens) - len(tokens) % READ_BLOCK
        parts = self._filled_up(row, at, tokens[:whole], READ_BLOCK, last=1)
        parts += self._filled_up(row, at + whole, tokens[whole:], READ_ROWS, last=1)
        return PassResult(parts[-1], row.cache, None)

    def _filled_up(
        self, row: HeldRows, begin: int, tokens: Sequence[int], rows: int, *, last: int
    ) -> list[Tensor]:
        """Logits of passes of so many rows, from row ``begin`` of the slot on; the last is filled up."""
        logits = []
        for start in range(0, len(tokens), rows):
            part, at = list(tokens[start : start + rows]), begin + start
            place = Block(at, len(part), rows, at + rows + -(at + rows) % SAME_KEYS)
            filled = [*part, *[part[-1]] * (rows - len(part))]
            self._will_run(row, at, len(part))
            ran = self.model.run(filled, row.cache, place, last=last, hidden=False)
            row.cache.cut(at + len(part))
            logits.append(ran.logits[: len(part)])
        return logits

    def _will_run(self, row: HeldRows, at: int, count: int) -> None:
        """The next pass has ``count`` rows, from row ``at`` of the slot on."""


def exact_target(model: CausalModel, context: int, abilities: Abilities) -> ExactHfTarget | None:
    """The target over a model that scores trees; None where blocks of keys change its logits."""
    ids = [(7 * i + 3) % int(model.config.vocab_size) for i in range(SAME_ROWS + 5)]
    target = ExactHfTarget(model, context, abilities)
    target.feed(0, ids[:3])
    [scores] = target.score([0], [chain(ids[3:])])
    target.crop(0, 0)
    return target if Closeness(model).to_plain(scores.logits, ids) else None
