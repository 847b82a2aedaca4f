"""Early-exit self-speculation (LayerSkip, arXiv 2404.16710): the first layers draft for the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import torch
from torch import Tensor
from typing_extensions import override

from engine.drafting.chain_draft import ChainDraft
from engine.drafting.draft_model import timed
from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources, StopRule
from engine.interfaces.target import Capability
from engine.request import Option
from engine.speculation.tree import DraftTree, ReusedRows

EXIT_STEP = "early exit step"  # seconds
STEP_REPEATS, STEP_SECONDS = 5, 0.5  # so much is measured; the first step builds kernels
EXIT_LAYER = Option(
    "exit_layer", "layers that draft; 0: as the model was trained, or a quarter", 0, 0, 1024
)


class EarlyExit(Drafter):
    """Chains from layers 0..E-1 of the target itself, sharing its cache, with siblings of their tokens.

    The early layers of a drafted row run once: their keys are in the target's own cache and the
    states after layers 1..E travel in ``DraftTree.warm``, so verification resumes there; the last
    row of the chain and all its siblings run through these layers in the pass. E may change from round to round, since
    every verification completes the keys of all layers.
    """

    title = "Early exit"
    summary = "The model's first layers draft for the others."
    accepted = "were guessed by the model's first layers"
    needs = frozenset({Capability.LAYERS})
    step_cost = EXIT_STEP
    max_draft = Budget(depth=12, nodes=12)
    plan_when = ("early exit", "dense")
    plan_reason = "its first {exit_layer} layers were trained to draft for the others, at no memory"
    stop_rules = frozenset({StopRule.CHANCES, StopRule.EXIT})
    default_length = "dynamic_exit"

    options = (EXIT_LAYER,)

    def __init__(self, parts: DrafterResources) -> None:
        """Take the target and the usual E."""
        self._target = parts.target
        self._exit = int(EXIT_LAYER.of(parts.options)) or max(1, self._target.layers // 4)
        self.step_seconds = parts.measured.get(EXIT_STEP, 0.0)
        self._deepest = self._target.layers
        if self._target.source is not None:  # deeper layers would be read for every drafted token
            self._deepest = min(self._deepest, self._target.source.whole)

    @classmethod
    @override
    def measure(cls, resources: DrafterResources) -> Mapping[str, float]:
        """Seconds of one row through the usual exit and the head; of streamed layers nothing."""
        target, layers = resources.target, EXIT_LAYER.of(resources.options)
        if not layers or target.source is not None:
            return {}

        def step() -> None:
            target.shallow([0], [0], int(layers))
            target.crop(0, 0)

        return {EXIT_STEP: min(timed(step, STEP_REPEATS, STEP_SECONDS))}

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context; requests with the same exit grow together."""
        strands = [ChainDraft(c, b) for c, b in zip(batch, budgets, strict=True)]
        growing = sorted((s for s in strands if not s.ended), key=self._exit_of)
        states: dict[int, list[Tensor]] = {}
        for exit_layer, group in groupby(growing, key=self._exit_of):
            states |= self._grow(list(group), exit_layer)
        return [_tree(strand, states.get(strand.context.slot)) for strand in strands]

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
