"""Sprout: one request's drawn tree while it grows, level by level, whatever model proposes its tokens."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
from engine.drafting.tree_shape import TreeShape
from engine.interfaces.drafter import Context
from engine.speculation.sampling import probabilities
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree

FAMILY = 32  # most children of one node
TELLING = 8  # least draws of a node: what is measured must not depend on how many of them stay


class TreeDraft(ABC):
    """Tokens behind the newest committed one; ``open`` are the nodes that get children next.

    Under a stop token nothing follows. Which nodes get how many children is decided before these are
    drawn, and a uniform draw where the draft's law has no mass left (top-k, top-p) would hardly ever
    be accepted: such children are left out.
    """

    def __init__(self, context: Context) -> None:
        """Start at the newest committed token."""
        self.context = context
        self.open: list[int] = [0]
        self._tokens = [context.ids[-1]]
        self._parents = [-1]
        self._laws: dict[int, Tensor] = {}  # of inner nodes, in node order

    @abstractmethod
    def extend(self, logits: Tensor) -> None:
        """Give the open nodes their children, from the draft's logits [n, V] behind each of them."""

    def growth(self) -> NewNodes:
        """The open nodes, to be fed."""
        return NewNodes(self.context.slot, self.open, self._tokens, self._parents)

    def tree(self) -> DraftTree:
        """What was drawn; a tree whose candidates were chosen has no law."""
        return DraftTree(tuple(self._tokens), tuple(self._parents), self._laws or None)

    @abstractmethod
    def drawn(self, node: int) -> Sequence[int]:
        """Tokens that were drawn below an inner node, in draw order, its children first."""

    def hints(self, node: int) -> Sequence[Hint]:
        """What the draft said of this node's children, if anybody kept it."""
        return ()

    def _add(self, parent: int, token: int) -> int:
        self._tokens.append(token)
        self._parents.append(parent)
        return len(self._tokens) - 1


class TreeLimits(NamedTuple):
    """What a spread tree may have, and what is believed of it."""

    nodes: int  # without the root
    depth: int
    worth: NDArray[np.float64]  # [depths, nodes + 1], ``Optimum.table``
    odds: AcceptanceModel
    family: int = FAMILY  # most children of one node


class AdaptiveTree(TreeDraft):
    """A tree whose nodes go where the draft's own laws make them worth most."""

    def __init__(self, context: Context, room: TreeLimits) -> None:
        """Nothing is drawn yet."""
        super().__init__(context)
        self._room, self._left = room, room.nodes
        self._reached = [1.0]  # by node: chance that the walk comes to it
        self._inner: dict[int, Siblings] = {}
        self._depth = 0  # of the open nodes
        if min(room.nodes, room.depth) < 1:
            self.open = []

    @override
    def extend(self, logits: Tensor) -> None:
        nodes, room = self.open, self._room
        laws = self._laws_of(logits)
        level = self._siblings(nodes, laws)
        self._depth += 1
        worth = room.worth[min(room.depth - self._depth, len(room.worth) - 1)]
        spread(level, self._left, marginal(worth), room.odds, self.context.stop_tokens)
        self.open = []
        for node, law, siblings in zip(nodes, laws, level, strict=True):
            if siblings.children:
                self._inner[node] = siblings
                if self.context.draws:
                    self._laws[node] = law
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

    def _laws_of(self, logits: Tensor) -> Tensor:
        if self.context.draws:
            return probabilities(logits, self.context.sampling)
        return torch.softmax(logits.float(), -1)

    def _siblings(self, nodes: Sequence[int], laws: Tensor) -> list[Siblings]:
        most = min(self._room.family, max(self._left, TELLING), laws.shape[-1])
        best = top_k(laws, most)
        ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        likeliest = [list(zip(tokens, values, strict=True)) for tokens, values in ranked]
        return [
            Siblings(self._reached[node], found, partial(self._draws, law, found))
            for node, law, found in zip(nodes, laws, likeliest, strict=True)
        ]

    def _draws(
        self, law: Tensor, likeliest: Sequence[tuple[int, float]]
    ) -> Sequence[tuple[int, float]]:
        if not self.context.draws:
            return likeliest
        tokens = self.context.rng.draw_distinct(law, len(likeliest))
        return list(zip(tokens, law[tokens].tolist(), strict=True))


class StaticTree(TreeDraft):
    """A tree along a shape that was fixed before; with replacement, as SpecInfer draws, on demand."""

    def __init__(self, context: Context, shape: TreeShape, *, replaced: bool = False) -> None:
        """Nothing is drawn yet."""
        super().__init__(context)
        self._shape, self._replaced = shape, replaced
        self._places = {0: 0}  # node of the shape -> of the tree
        self._ends = [0]  # nodes of the shape that stand where ``open`` does
        if shape.depth < 1:
            self.open = []

    @override
    def extend(self, logits: Tensor) -> None:
        wanted = [len(self._shape.children[node]) for node in self._ends]
        grown: list[int] = []
        for node, found in zip(self._ends, self._candidates(wanted, logits), strict=True):
            for child, token in zip(self._shape.children[node], found, strict=False):
                self._places[child] = self._add(self._places[node], token)
                grown.append(child)
        stops = self.context.stop_tokens
        self._ends = [
            n for n in grown
            if self._shape.children[n] and self._tokens[self._places[n]] not in stops
        ]  # fmt: skip
        self.open = [self._places[n] for n in self._ends]

    @override
    def drawn(self, node: int) -> Sequence[int]:
        return [self._tokens[n] for n, parent in enumerate(self._parents) if parent == node]

    @override
    def tree(self) -> DraftTree:
        laws = self._laws or None
        replaced = self._replaced and bool(laws)
        return DraftTree(tuple(self._tokens), tuple(self._parents), laws, replaced=replaced)

    def _candidates(self, wanted: Sequence[int], logits: Tensor) -> list[list[int]]:
        if not self.context.draws:
            best = top_k(logits, min(max(wanted), logits.shape[-1])).indices.tolist()
            return [row[:count] for row, count in zip(best, wanted, strict=True)]
        laws = probabilities(logits, self.context.sampling)
        self._laws |= dict(zip(self.open, laws, strict=True))
        chance, pairs = self.context.rng, zip(laws, wanted, strict=True)
        if self._replaced:
            return [[chance.draw(law) for _ in range(count)] for law, count in pairs]
        return [chance.draw_distinct(law, count) for law, count in pairs]
