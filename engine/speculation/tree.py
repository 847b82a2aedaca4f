"""DraftTree: the one value that every drafter returns and every target scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class ReusedRows:
    """Rows that early exit has run through the first layers already.

    ``states`` [E, M, C] are the states after each of the first E layers of the tree's first M nodes.
    """

    states: Tensor

    @property
    def layer(self) -> int:
        """E: the layer where verification resumes."""
        return len(self.states)

    @property
    def hidden(self) -> Tensor:
        """[M, C] after layer E."""
        return self.states[-1]


@dataclass(frozen=True)
class DraftTree:
    """Tokens that hang behind the committed prefix; node 0 is the newest committed token.

    Node 0's keys are not cached yet: it was chosen by the last round. A plain step is a tree of
    one node, a chain a tree of width one, a prompt chunk a chain that is committed unjudged.
    """

    tokens: tuple[int, ...]  # [N]
    parents: tuple[int, ...]  # [N]; parents[0] == -1, a parent stands before its children
    q: dict[int, Tensor] | None = None  # inner node -> [V], the law that its children were drawn
    #                                     from without replacement, in node order; None: the
    #                                     candidates were chosen deterministically
    replaced: bool = False  # children were drawn with replacement (SpecInfer); duplicates stay
    warm: ReusedRows | None = None
    trace: bool = False  # score() shall also return the state after every layer
    expected: float = 0.0  # accepted tokens, by the estimate of a drafter that knows its chances
    later: float = 0.0  # tokens that rounds to come gain by it, by the same estimate
    grafted: int = 0  # of the last nodes: another drafter's

    def __post_init__(self) -> None:
        """Reject a malformed tree where it is made, not where it is scored."""
        if len(self.tokens) != len(self.parents) or not self.tokens or self.parents[0] != -1:
            raise ValueError("a tree needs a root with parent -1 and one parent per token")
        if len(self.tokens) == 1:
            return
        if any(not 0 <= parent < node for node, parent in enumerate(self.parents) if node):
            raise ValueError("every node but the root needs a parent that stands before it")

    def __len__(self) -> int:
        """Nodes, the root included."""
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """Proposed tokens: every node but the root."""
        return len(self.tokens) - 1

    @property
    def own(self) -> "DraftTree":
        """Without what was grafted."""
        kept = len(self) - self.grafted
        if kept == len(self):
            return self
        return replace(self, tokens=self.tokens[:kept], parents=self.parents[:kept], grafted=0)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of every node in draw order."""
        return children_of(self.parents)

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """Edges between the root and every node."""
        return depths_of(self.parents)

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Nodes by depth, the root's level first."""
        return levels_of(self.depth)

    @cached_property
    def leaves_first(self) -> tuple[int, ...]:
        """Every node after all that is below it, siblings in draw order; the root is last."""
        found, waiting = [], [0]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += self.children[node]  # the last child is met first, and turned round below
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


def graft(tree: DraftTree, other: DraftTree, most: int) -> DraftTree:
    """What ``other`` has and the tree does not, behind the same root, up to ``most`` nodes in all.

    The tree's own nodes keep their places. Only for chosen candidates: what is drawn from a law must not
    stand beside what is not.
    """
    assert tree.q is None
    assert other.q is None
    tokens, parents = list(tree.tokens), list(tree.parents)
    known = {key: node for node, key in enumerate(zip(parents, tokens, strict=True)) if node}
    place: dict[int, int] = {0: 0}  # of the other's nodes
    for node, (parent, token) in enumerate(zip(other.parents, other.tokens, strict=True)):
        if parent not in place:  # the root, or what had no room
            continue
        key = place[parent], token
        if key not in known:
            if len(tokens) >= most:
                continue
            known[key] = len(tokens)
            parents.append(place[parent])
            tokens.append(token)
        place[node] = known[key]
    fresh = len(tokens) - len(tree)
    if not fresh:
        return tree
    return replace(tree, tokens=tuple(tokens), parents=tuple(parents), grafted=tree.grafted + fresh)


def ancestor_bits(parents: Sequence[int], known: Sequence[int] = ()) -> list[int]:
    """Which nodes each node sees, itself and its ancestors: bit i of an integer is node i.

    ``known`` are those of earlier nodes; ``parents`` then counts from the first of them. A parent
    of -1 hangs on the committed prefix.
    """
    seen = list(known)
    for node, parent in enumerate(parents, len(seen)):
        seen.append((seen[parent] if parent >= 0 else 0) | 1 << node)
    return seen[len(known) :]


def bit_rows(bits: Sequence[int], nodes: int) -> np.ndarray:
    """The same as a matrix, bool [n, nodes]."""
    width = (nodes + 7) // 8
    packed = b"".join(each.to_bytes(width, "little") for each in bits)
    rows = np.frombuffer(packed, np.uint8).reshape(len(bits), width)
    return np.unpackbits(rows, axis=1, count=nodes, bitorder="little").view(bool)
