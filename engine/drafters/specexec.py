"""SpecExec (arXiv 2406.02532): the likeliest continuations under a draft model, best first."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from engine.decode.tree import DraftTree, single
from engine.follow import Follower, Growth
from engine.protocols import Budget, Capability, Context, Outcome, Parts

DECAY = 0.95  # per level: a child is strictly worse than its parent even when the draft is certain
WAVE = 16  # nodes expanded together in one draft pass
BRANCH = 16  # most children that one node proposes


@dataclass
class _Growth:
    """A tree while it grows; score is the decayed log-probability of the path under the draft."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    scores: list[float] = field(default_factory=lambda: [0.0])
    depths: list[int] = field(default_factory=lambda: [0])
    open: list[int] = field(default_factory=list)  # candidates: not fed to the draft yet

    def threshold(self, nodes: int) -> float:
        """The score that a node needs to be among the best ``nodes`` (root not counted)."""
        ranked = heapq.nlargest(nodes, self.scores[1:])
        return ranked[-1] if len(ranked) == nodes else -math.inf

    def add(self, token: int, parent: int, score: float) -> None:
        """Append a candidate."""
        self.open.append(len(self.tokens))
        self.tokens.append(token)
        self.parents.append(parent)
        self.scores.append(score)
        self.depths.append(self.depths[parent] + 1)

    def best(self, nodes: int) -> tuple[DraftTree, dict[int, int]]:
        """The ``nodes`` best and their new numbers; closed under ancestors because scores fall strictly with depth."""
        ranked = sorted(range(1, len(self.tokens)), key=lambda n: (-self.scores[n], n))[:nodes]
        kept = [0, *sorted(ranked)]
        place = {node: i for i, node in enumerate(kept)}
        parents = [-1, *(place[self.parents[n]] for n in kept[1:])]
        return DraftTree(tuple(self.tokens[n] for n in kept), tuple(parents)), place


class SpecExec:
    """Grows by parallel best-first search (section 4.2); candidates are deterministic.

    Draft probabilities only order the search and never enter verification, so any tree is exact.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset({Capability.TREE, Capability.DRAFT_MODEL})
    length: ClassVar[Budget] = Budget(depth=8, nodes=24)

    def __init__(self, parts: Parts) -> None:
        """Take the draft model; ``wave`` and ``branch`` of the options override the widths."""
        assert parts.draft_model is not None  # ``needs`` was checked when the engine was built
        self._follower = Follower(parts.draft_model)
        self._wave = int(parts.options.get("wave", WAVE))
        self._branch = int(parts.options.get("branch", BRANCH))

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context."""
        return [self._one(c, b) for c, b in zip(batch, budgets, strict=True)]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the draft model's cache of accepted tokens."""
        for outcome in outcomes:
            self._follower.settle(outcome)

    def forget(self, request: int, slot: int) -> None:
        """The slot's cache stays: its next request may share the prefix."""

    def _one(self, context: Context, budget: Budget) -> DraftTree:
        if min(budget.depth, budget.nodes, self._follower.room(context)) < 1:
            return single(context.ids[-1])
        tree = _Growth([context.ids[-1]])
        self._expand(tree, [0], self._follower.start([context])[0].logits, budget)
        while wave := self._next_wave(tree, budget):
            growth = Growth(context.slot, wave, tree.tokens, tree.parents)
            logits = self._follower.grow([growth])[0].logits
            if not self._expand(tree, wave, logits, budget):
                break
        best, place = tree.best(budget.nodes)
        self._follower.relabel(context.slot, place)
        return best

    def _next_wave(self, tree: _Growth, budget: Budget) -> list[int]:
        """The best candidates that may have children and can still matter, in tree order."""
        floor = tree.threshold(budget.nodes)
        tree.open = [
            n for n in tree.open if tree.depths[n] < budget.depth and tree.scores[n] > floor
        ]
        wave = sorted(heapq.nlargest(self._wave, tree.open, key=lambda n: tree.scores[n]))
        tree.open = [n for n in tree.open if n not in set(wave)]
        return wave

    def _expand(self, tree: _Growth, wave: list[int], logits: Tensor, budget: Budget) -> bool:
        """Append the children that reach the budget's threshold; False when none does."""
        width = min(self._branch, budget.nodes, logits.shape[-1])
        best = torch.log_softmax(logits.float(), -1).topk(width)
        base = torch.tensor([tree.scores[n] for n in wave]).unsqueeze(1) + math.log(DECAY)
        scores = (best.values.cpu() + base).tolist()
        tokens = best.indices.tolist()
        fresh = [s for row in scores for s in row]
        ranked = heapq.nlargest(budget.nodes, tree.scores[1:] + fresh)
        floor = ranked[-1] if len(ranked) == budget.nodes else -math.inf
        before = len(tree.tokens)
        for node, row, names in zip(wave, scores, tokens, strict=True):
            for score, token in zip(row, names, strict=True):
                if score >= floor:
                    tree.add(token, node, score)
        return len(tree.tokens) > before
