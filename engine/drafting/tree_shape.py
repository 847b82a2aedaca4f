"""The tree shape that is worth most under an acceptance by rank: Sequoia's dynamic programme.

Sequoia (arXiv 2402.12374, section 3 and Algorithms 1 and 4) assumes that the chance that a node's
b-th drawn child is the accepted one is a constant P[b] of the rank alone. Then the expected number
of tokens of a round, the target's own included, is F(T) = sum over nodes of the product of P along
the path, and the best tree of n nodes and depth d follows from smaller trees. ``G(n, d)`` is its F.

    T_d[n, b] = max over m of T_d[n - m, b - 1] + P[b] * G(m, d - 1)      b-th child gets m nodes
    G(n, d)   = max over b of T_d[n, b],    T_d[1, 0] = 1

Depth counts levels below the root, so the paper's d is one more. Nodes count the root.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

IMPOSSIBLE = -np.inf


class OptimalTree:
    """G(n, d) for every n and d up to a limit, and the shapes that reach it.

    With ``depth`` None the depth is free: layers are added until one more changes nothing, which
    is where the bounded recursion meets the unbounded one (Algorithm 1). Costs
    O(nodes^2 * depth * ranks) at worst, in ``numpy``; a later child that is no likelier than c - 1
    earlier ones never gets more than 1 / c of the nodes, which saves most of it.
    """

    def __init__(self, acceptance: Sequence[float], nodes: int, depth: int | None = None) -> None:
        """``acceptance`` [W]: P of the first, second, ... drawn child; W is the widest fan-out."""
        if nodes < 1:
            raise ValueError(f"a tree has at least its root; {nodes} nodes were asked for")
        self.acceptance = tuple(float(p) for p in acceptance)
        self.nodes, self.depth = nodes, nodes - 1 if depth is None else depth
        lone = np.full((nodes + 1, 1), IMPOSSIBLE)
        lone[1, 0] = 1.0
        self._layers = [lone]  # by depth: T [nodes + 1, children + 1]
        self._best = [lone[:, 0]]  # by depth: G [nodes + 1]
        while len(self._best) <= min(self.depth, nodes - 1) and self._deepen():
            pass

    def expected(self, nodes: int, depth: int | None = None) -> float:
        """G(n, d): tokens per round of the best tree of exactly n nodes; -inf if none exists."""
        return float(self._best[self._level(depth)][nodes])

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """G as an array [d, n]; depths beyond the last row are worth as much as the last row."""
        return np.stack(self._best)

    def largest(self, nodes: int, depth: int | None = None) -> int:
        """The most nodes, at most ``nodes``, that a tree of this depth and these ranks can hold."""
        fitting = np.flatnonzero(self._best[self._level(depth)][: nodes + 1] > IMPOSSIBLE)
        return int(fitting[-1])

    def shape(self, nodes: int, depth: int | None = None) -> tuple[int, ...]:
        """Parents in the best tree of exactly ``nodes`` nodes; ValueError where none exists.

        Nodes are in level order and siblings in draw order, as in ``DraftTree``.
        """
        level = self._level(depth)
        if self._best[level][nodes] == IMPOSSIBLE:
            raise ValueError(f"no tree of {nodes} nodes fits depth {level} with these ranks")
        parents, queue = [-1], [(nodes, level)]
        for node, (count, below) in enumerate(queue):  # grows while it is walked: level order
            for share in self._split(count, below):
                parents.append(node)
                queue.append((share, below - 1))
        return tuple(parents)

    def _level(self, depth: int | None) -> int:
        last = len(self._best) - 1
        return last if depth is None else max(0, min(depth, last))

    def _deepen(self) -> bool:
        """Add one layer; False when it equals the last one, as all further ones would."""
        below, ranks = self._best[-1], min(len(self.acceptance), self.nodes - 1)
        layer = np.full((self.nodes + 1, ranks + 1), IMPOSSIBLE)
        layer[1, 0] = 1.0
        best = layer[:, 0].copy()
        for rank in range(1, ranks + 1):
            layer[2:, rank] = _best_split(layer[:, rank - 1], self._worth(rank, below))
            if not (layer[:, rank] > best).any() and self._falls(rank):
                break  # if this child is of no use, a later one that is no likelier is neither
            np.maximum(best, layer[:, rank], out=best)
        if np.array_equal(best, below):
            return False
        self._layers.append(layer)
        self._best.append(best)
        return True

    def _falls(self, rank: int) -> bool:
        """Whether no rank after this one is likelier than any up to it."""
        return max(self.acceptance[rank:], default=0.0) <= min(self.acceptance[:rank])

    def _worth(self, rank: int, below: NDArray[np.float64]) -> NDArray[np.float64]:
        """P[rank] * G(m, d - 1) for m = 1 .. the most nodes that the ``rank``-th child may have.

        Siblings before it that are no less likely have no fewer nodes: else swap the sub-trees.
        """
        own = self.acceptance[rank - 1]
        most = (self.nodes - 1) // sum(p >= own for p in self.acceptance[:rank])
        share = below[1 : max(1, most) + 1]
        found = np.full(share.shape, IMPOSSIBLE)
        np.multiply(share, own, out=found, where=share > IMPOSSIBLE)  # 0 * -inf is not a number
        return found

    def _split(self, nodes: int, level: int) -> list[int]:
        """Nodes of each child's sub-tree in the best tree of ``nodes`` nodes, first child first."""
        if nodes == 1:
            return []
        layer, below = self._layers[level], self._best[level - 1]
        shares: list[int] = []
        for rank in range(int(layer[nodes].argmax()), 0, -1):
            values = self._worth(rank, below)[: nodes - 1]
            rest = layer[nodes - len(values) : nodes, rank - 1][::-1]
            shares.append(int((rest + values).argmax()) + 1)
            nodes -= shares[-1]
        return shares[::-1]


def _best_split(rest: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """max over m >= 1 of rest[n - m] + values[m - 1], for n = 2 .. N; [N - 1]."""
    most = len(values)
    padded = np.concatenate((np.full(most, IMPOSSIBLE), rest[:-1]))
    windows = sliding_window_view(padded, most)[2:]  # row n: rest[n - most .. n - 1]
    best: NDArray[np.float64] = (windows + values[::-1]).max(1)
    return best


def uniform(arity: int, nodes: int, depth: int) -> tuple[int, ...]:
    """Parents of the first ``nodes`` nodes of the tree that has ``arity`` children everywhere."""
    parents, last, first_of_level = [-1], 0, 0
    for _ in range(depth):
        level = range(first_of_level, last + 1)
        fresh = [node for node in level for _ in range(arity)][: nodes - len(parents)]
        if not fresh:
            break
        parents += fresh
        first_of_level, last = last + 1, last + len(fresh)
    return tuple(parents)
