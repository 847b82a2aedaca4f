"""DraftTree: what every drafter returns and every target scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class ReusedRows:
    """Layers that early exit has already run for the first nodes of a tree.

    ``states`` [E, M, C]: the hidden states after each of the first E layers, for the first M nodes.
    """

    states: Tensor

    @property
    def layer(self) -> int:
        """E, the layer where verification continues."""
        return len(self.states)

    @property
    def hidden(self) -> Tensor:
        """The hidden states [M, C] after layer E."""
        return self.states[-1]


@dataclass(frozen=True)
class DraftTree:
    """Drafted tokens after the committed prefix. Node 0, the root, is the last committed token.

    The root's keys are not in the kv cache yet: the last step chose it. A plain step is a tree of
    one node, a chain is a tree of width one, a prompt chunk is a chain committed without verifying.
    """

    tokens: tuple[int, ...]  # [N]
    parents: tuple[int, ...]  # [N]; parents[0] == -1, and parents come before their children
    q: dict[int, Tensor] | None = None  # inner node -> [V], the distribution that its children were
    #                                     sampled from without replacement, in node order; None: the
    #                                     candidates were chosen deterministically
    replaced: bool = False  # children were sampled with replacement (SpecInfer); duplicates stay
    warm: ReusedRows | None = None
    trace: bool = False  # score() also returns the hidden states after every layer
    expected: float = 0.0  # accepted tokens, estimated by the drafter
    later: float = 0.0  # tokens that this draft saves in later steps, estimated by the drafter

    def __post_init__(self) -> None:
        """Reject a malformed tree when it is created, not when it is scored."""
        if len(self.tokens) != len(self.parents) or not self.tokens or self.parents[0] != -1:
            raise ValueError("a tree needs a root with parent -1 and one parent per token")
        if len(self.tokens) == 1:
            return
        if any(not 0 <= parent < node for node, parent in enumerate(self.parents) if node):
            raise ValueError("every node but the root needs a parent before it")

    def __len__(self) -> int:
        """Number of nodes, the root included."""
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """Number of drafted tokens: every node but the root."""
        return len(self.tokens) - 1

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of every node, in sampling order."""
        return children_of(self.parents)

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """Number of edges from the root to every node."""
        return depths_of(self.parents)

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Nodes of each depth, the root's level first."""
        return levels_of(self.depth)

    @cached_property
    def leaves_first(self) -> tuple[int, ...]:
        """Post-order: every node after its sub-tree, siblings in sampling order; the root is last."""
        found, stack = [], [0]
        while stack:
            node = stack.pop()
            found.append(node)
            stack += self.children[node]
        return tuple(reversed(found))

    @property
    def is_chain(self) -> bool:
        """Whether every node's parent is its predecessor."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))


def children_of(parents: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Children of every node of a tree, in node order; ``parents[0]`` is -1."""
    found: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], 1):
        found[parent].append(node)
    return tuple(tuple(children) for children in found)


def depths_of(parents: Sequence[int]) -> tuple[int, ...]:
    """Edges between the root and every node of a tree."""
    found = [0]
    for parent in parents[1:]:
        found.append(found[parent] + 1)
    return tuple(found)


def levels_of(depths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Nodes by depth, the root's level first."""
    found: list[list[int]] = [[] for _ in range(max(depths) + 1)]
    for node, depth in enumerate(depths):
        found[depth].append(node)
    return tuple(tuple(level) for level in found)


def single(token: int) -> DraftTree:
    """The tree of a plain step."""
    return DraftTree((token,), (-1,))


def chain(tokens: Sequence[int], q: dict[int, Tensor] | None = None) -> DraftTree:
    """A tree of width one; ``tokens[0]`` is the root."""
    return DraftTree(tuple(tokens), tuple(range(-1, len(tokens) - 1)), q)


def ancestor_bits(parents: Sequence[int], known: Sequence[int] = ()) -> list[int]:
    """One integer per node: bit i is set where node i is the node itself or an ancestor.

    ``known`` holds the bits of earlier nodes; ``parents`` then counts from the first of those. A
    parent of -1 is the committed prefix.
    """
    seen = list(known)
    for node, parent in enumerate(parents, len(seen)):
        seen.append((seen[parent] if parent >= 0 else 0) | 1 << node)
    return seen[len(known) :]


def bit_rows(bits: Sequence[int], nodes: int) -> np.ndarray:
    """``ancestor_bits`` as a matrix, bool [n, nodes]."""
    width = (nodes + 7) // 8
    packed = b"".join(each.to_bytes(width, "little") for each in bits)
    rows = np.frombuffer(packed, np.uint8).reshape(len(bits), width)
    return np.unpackbits(rows, axis=1, count=nodes, bitorder="little").view(bool)
