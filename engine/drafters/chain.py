"""Draft-model chain (Leviathan et al., arXiv 2211.17192): a small model proposes token by token."""

from collections.abc import Mapping, Sequence

import torch
from typing_extensions import override

from engine.drafting.chain_draft import ChainDraft
from engine.drafting.draft_cache import DraftCache, NewNodes
from engine.drafting.draft_costs import DRAFT_READ, DRAFT_STEP, measure_draft_model
from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources, Outcome, StopRule
from engine.interfaces.target import Capability
from engine.speculation.tree import DraftTree

BRANCHED, HIDDEN = 16, 4 / 3  # rows of a tree; passes of one that so many may take, or chains win


class Chain(Drafter):
    """Greedy requests get the draft's likeliest tokens, sampled ones draws from the draft's law.

    All requests of a step grow together: one pass of the draft model for each depth. It replaces
    trees where their rows cost time: a chain ends where the draft is unsure, and what second choices
    bring there is less than their rows. On a modelled clock, greedy, with the bundled pair, the better
    of two trees had 1.03 to 1.23 times the pace of chains on seven curves with 16 rows for at most 1.4
    passes of one, and 0.92 to 0.99 times it on six with 1.7 and more (temperature 1: 1.02 and 1.03).
    """

    title = "Draft chain"
    summary = "A small model drafts one token after another."
    accepted = "were guessed by the small draft model"
    needs = frozenset({Capability.DRAFT_MODEL})
    step_cost = DRAFT_STEP
    max_draft = Budget(depth=16, nodes=16)
    stop_rules = frozenset({StopRule.CHANCES, StopRule.STATES})
    default_length = "confidence"

    def __init__(self, parts: DrafterResources) -> None:
        """Take the draft model of ``parts``."""
        assert parts.draft_model is not None  # ``needs`` was checked when the engine was built
        self._follower = DraftCache(
            parts.draft_model, parts.measured.get(DRAFT_READ, 0.0), parts.clock
        )
        self.step_seconds = parts.measured.get(DRAFT_STEP, 0.0)
        dear = parts.cost.nominal(BRANCHED) > HIDDEN * parts.cost.nominal(1)
        self._replaces_trees = dear

    @classmethod
    @override
    def measure(cls, resources: DrafterResources) -> Mapping[str, float]:
        """Costs of the draft model."""
        return measure_draft_model(resources)

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One chain for each context."""
        strands = [ChainDraft(c, b) for c, b in zip(batch, budgets, strict=True)]
        growing = [s for s in strands if self._goes_on(s)]
        if growing:
            self._grow(growing)
        return [s.tree() for s in strands]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the draft model's cache of accepted tokens."""
        for outcome in outcomes:
            self._follower.settle(outcome)

    @override
    def prefill_seconds(self, context: Context) -> float:
        """Seconds that the draft model needs to catch up with the request."""
        return self._follower.reading(context)

    @override
    def prefill(self, context: Context) -> bool:
        """Let the draft model read one more chunk of the request's prompt."""
        return self._follower.read(context)

    @override
    def forget(self, request: int, slot: int) -> None:
        """The slot's cache stays: its next request may share the prefix."""
        self._follower.forget(slot)

    @override
    def replaces(self, other: Drafter) -> bool:
        """Trees of the same draft model, where their rows cost time."""
        return self._replaces_trees and {Capability.TREE, Capability.DRAFT_MODEL} <= other.needs

    @torch.inference_mode()
    def _grow(self, strands: list[ChainDraft]) -> None:
        starts = self._follower.start([s.context for s in strands])
        for strand, grown in zip(strands, starts, strict=True):
            if strand.feed(grown.hidden[-1]):
                strand.draw(grown.logits[-1])
        while strands := [s for s in strands if self._goes_on(s)]:
            fed = self._follower.grow([_newest(s) for s in strands])
            for strand, grown in zip(strands, fed, strict=True):
                if strand.feed(grown.hidden[-1]):
                    strand.draw(grown.logits[-1])

    def _goes_on(self, strand: ChainDraft) -> bool:
        return not strand.ended and strand.newest < self._follower.room(strand.context)


def _newest(strand: ChainDraft) -> NewNodes:
    newest = strand.newest
    return NewNodes(strand.context.slot, [newest], strand.tokens, range(-1, newest))
