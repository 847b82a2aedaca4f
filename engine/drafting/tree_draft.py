"""One request's drawn tree while it grows level by level, whatever model proposes the tokens."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from engine.drafting.acceptance_model import AcceptanceModel, Hint
from engine.drafting.draft_cache import NewNodes
from engine.drafting.node_allocation import Child, Siblings, marginal, spread
from engine.drafting.tuning import TUNING
from engine.interfaces.drafter import Context
from engine.speculation.sampling import probabilities
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree, children_of


class TreeDraft(ABC):
    """Tokens after the newest committed one; ``open`` are the nodes that get children next.

    A stop token gets no children. How many children a node gets is decided before they are drawn;
    fewer are drawn where the draft has no mass left (top-k, top-p).
    """

    def __init__(self, context: Context) -> None:
        """Start at the newest committed token."""
        self.context = context
        self.open: list[int] = [0]
        self._tokens = [context.ids[-1]]
        self._parents = [-1]
        self._probs: dict[int, Tensor] = {}  # of inner nodes, in node order

    @abstractmethod
    def extend(self, logits: Tensor) -> None:
        """Give the open nodes their children, from the draft's logits [n, V] after each of them."""

    def growth(self) -> NewNodes:
        """The open nodes, to be fed."""
        return NewNodes(self.context.slot, self.open, self._tokens, self._parents)

    def tree(self) -> DraftTree:
        """What was drawn; ``q`` is None if its candidates were chosen."""
        return DraftTree(tuple(self._tokens), tuple(self._parents), self._probs or None)

    @abstractmethod
    def drawn(self, node: int) -> Sequence[int]:
        """Tokens that were drawn below an inner node, in draw order, its children first."""

    def hints(self, node: int) -> Sequence[Hint]:
        """What the draft said of this node's children, if that was kept."""
        return ()

    def _add(self, parent: int, token: int) -> int:
        self._tokens.append(token)
        self._parents.append(parent)
        return len(self._tokens) - 1


class TreeLimits(NamedTuple):
    """Limits of an adaptive tree, and what its nodes are expected to bring."""

    nodes: int  # without the root
    depth: int
    worth: NDArray[np.float64]  # [depths, nodes + 1], ``OptimalTree.table``
    model: AcceptanceModel
    family: int = TUNING.ranks  # most children of one node


class AdaptiveTree(TreeDraft):
    """A tree whose nodes go where the draft's own probabilities make them worth most."""

    def __init__(self, context: Context, limits: TreeLimits) -> None:
        """Nothing is drawn yet."""
        super().__init__(context)
        self._limits, self._left = limits, limits.nodes
        self._reached = [1.0]  # by node: chance that verification reaches it
        self._inner: dict[int, Siblings] = {}
        self._depth = 0  # of the open nodes
        if min(limits.nodes, limits.depth) < 1:
            self.open = []

    @override
    def extend(self, logits: Tensor) -> None:
        nodes, limits = self.open, self._limits
        probs = self._probabilities(logits)
        level = self._siblings(nodes, probs)
        self._depth += 1
        worth = limits.worth[min(limits.depth - self._depth, len(limits.worth) - 1)]
        spread(level, self._left, marginal(worth), limits.model, self.context.stop_tokens)
        self.open = []
        for node, row, siblings in zip(nodes, probs, level, strict=True):
            if siblings.children:
                self._inner[node] = siblings
                if self.context.draws:
                    self._probs[node] = row
            for child in siblings.children:
                self._take(node, child)

    @override
    def drawn(self, node: int) -> Sequence[int]:
        return [token for token, _ in self._inner[node].draws]

    @override
    def hints(self, node: int) -> Sequence[Hint]:
        return self._inner[node].hints

    def _take(self, parent: int, child: Child) -> None:
        node = self._add(parent, child.token)
        self._reached.append(child.reached)
        self._left -= 1
        if child.below:
            self.open.append(node)

    def _probabilities(self, logits: Tensor) -> Tensor:
        if self.context.draws:
            return probabilities(logits, self.context.sampling)
        return torch.softmax(logits.float(), -1)

    def _siblings(self, nodes: Sequence[int], probs: Tensor) -> list[Siblings]:
        drawn = max(self._left, TUNING.measured_draws)
        best = top_k(probs, min(self._limits.family, drawn, probs.shape[-1]))
        ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        likeliest = [list(zip(tokens, values, strict=True)) for tokens, values in ranked]
        return [
            Siblings(self._reached[node], found, partial(self._draws, row, found))
            for node, row, found in zip(nodes, probs, likeliest, strict=True)
        ]

    def _draws(
        self, probs: Tensor, likeliest: Sequence[tuple[int, float]]
    ) -> Sequence[tuple[int, float]]:
        if not self.context.draws:
            return likeliest
        tokens = self.context.rng.draw_distinct(probs, len(likeliest))
        return list(zip(tokens, probs[tokens].tolist(), strict=True))


class StaticTree(TreeDraft):
    """A tree along a fixed shape; ``replaced``: drawn with replacement, as in SpecInfer."""

    def __init__(self, context: Context, parents: Sequence[int], *, replaced: bool = False) -> None:
        """``parents`` of the shape, the root's first; nothing is drawn yet."""
        super().__init__(context)
        self._children, self._replaced = children_of(parents), replaced
        self._places = {0: 0}  # node of the shape -> of the tree
        self._ends = [0]  # nodes of the shape that correspond to ``open``
        if len(parents) == 1:
            self.open = []

    @override
    def extend(self, logits: Tensor) -> None:
        wanted = [len(self._children[node]) for node in self._ends]
        grown: list[int] = []
        for node, found in zip(self._ends, self._candidates(wanted, logits), strict=True):
            for child, token in zip(self._children[node], found, strict=False):
                self._places[child] = self._add(self._places[node], token)
                grown.append(child)
        stops = self.context.stop_tokens
        self._ends = [
            n for n in grown
            if self._children[n] and self._tokens[self._places[n]] not in stops
        ]  # fmt: skip
        self.open = [self._places[n] for n in self._ends]

    @override
    def drawn(self, node: int) -> Sequence[int]:
        return [self._tokens[n] for n, parent in enumerate(self._parents) if parent == node]

    @override
    def tree(self) -> DraftTree:
        return replace(super().tree(), replaced=self._replaced and bool(self._probs))

    def _candidates(self, wanted: Sequence[int], logits: Tensor) -> list[list[int]]:
        if not self.context.draws:
            best = top_k(logits, min(max(wanted), logits.shape[-1])).indices.tolist()
            return [row[:count] for row, count in zip(best, wanted, strict=True)]
        probs = probabilities(logits, self.context.sampling)
        self._probs |= dict(zip(self.open, probs, strict=True))
        rng, pairs = self.context.rng, zip(probs, wanted, strict=True)
        if self._replaced:
            return [[rng.draw(row) for _ in range(count)] for row, count in pairs]
        return [rng.draw_distinct(row, count) for row, count in pairs]
