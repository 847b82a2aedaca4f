"""Early-exit self-speculation (LayerSkip, arXiv 2404.16710): the first layers draft for the rest."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import ClassVar

import torch
from torch import Tensor

from engine.drafting.chain_draft import ChainDraft
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, StopRule
from engine.interfaces.target import Capability
from engine.speculation.tree import DraftTree, ReusedRows


class EarlyExit:
    """Chains from layers 0..E-1 of the target itself, sharing its cache, and what stands beside them.

    The early layers of a drafted row run once: their keys are in the target's own cache and the
    states after layers 1..E travel in ``DraftTree.warm``, so verification resumes there; the last
    row of the chain and all beside it run through these layers in the pass. E may
    change from round to round, since every verification completes the keys of all layers.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset({Capability.LAYERS})
    length: ClassVar[Budget] = Budget(depth=12, nodes=12)
    heeds: ClassVar[frozenset[StopRule]] = frozenset({StopRule.CHANCES, StopRule.EXIT})
    policy: ClassVar[str] = "dynamic_exit"
    declines: ClassVar[bool] = False

    def __init__(self, parts: DrafterResources) -> None:
        """``exit_layer`` of the options is the usual E; by default a quarter of the layers."""
        self._target = parts.target
        default = max(1, self._target.layers // 4)
        self._exit = int(parts.options.get("exit_layer", default))
        self.step_seconds = parts.exit_step
        self._deepest = self._target.layers
        if self._target.source is not None:  # deeper layers would be read for every drafted token
            self._deepest = min(self._deepest, self._target.source.whole)

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context; requests with the same exit grow together."""
        strands = [ChainDraft(c, b) for c, b in zip(batch, budgets, strict=True)]
        growing = sorted((s for s in strands if not s.ended), key=self._exit_of)
        states: dict[int, list[Tensor]] = {}
        for exit_layer, group in groupby(growing, key=self._exit_of):
            states |= self._grow(list(group), exit_layer)
        return [_tree(strand, states.get(strand.context.slot)) for strand in strands]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Exits are the length policy's to learn."""

    def forget(self, request: int, slot: int) -> None:
        """All state lives in the target's cache."""

    def _exit_of(self, strand: ChainDraft) -> int:
        return min(strand.budget.exit_layer or self._exit, self._deepest)

    @torch.inference_mode()
    def _grow(self, strands: list[ChainDraft], exit_layer: int) -> dict[int, list[Tensor]]:
        """Draft; the states [E, C] of every fed row, by slot."""
        fed: dict[int, list[Tensor]] = {s.context.slot: [] for s in strands}
        for slot in fed:
            self._target.crop(slot, self._target.length(slot))
        while strands:
            slots = [s.context.slot for s in strands]
            newest = [s.tokens[-1] for s in strands]
            logits, states = self._target.shallow(slots, newest, exit_layer)
            for row, strand in enumerate(strands):
                fed[strand.context.slot].append(states[:, row])
                strand.draw(logits[row])
            strands = [s for s in strands if not s.ended]
        return fed


def _tree(strand: ChainDraft, states: list[Tensor] | None) -> DraftTree:
    warm = None if states is None else ReusedRows(torch.stack(states, 1))
    return replace(strand.tree(), warm=warm, trace=strand.budget.trace)
