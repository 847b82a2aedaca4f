"""How the nodes that are left are spread over the newest level of a drawn tree.

Sequoia (arXiv 2402.12374) fixes the shape of a tree before anything is drawn. Once a level is drawn,
the draft's probabilities say more than ranks do: depth is best where it is sure, width where it is
not, and nothing below an unlikely token. So F, the expected tokens, is maximised again at every
level over the nodes that are left: the most promising first, as in DySpec (arXiv 2410.11744), but by
measured chances, and with Sequoia's G(n, d) for what is not drawn yet.

Whether a further child is drawn depends on what was drawn before, never on the child itself, so the
distribution of what is emitted stays the target's (engine/speculation/verify.py).
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.drafting.acceptance_model import AcceptanceModel, Hint

EMPTY = 1e-9  # mass below which nothing is left to be drawn


@dataclass
class Siblings:
    """A node's children, revealed one by one in draw order."""

    reached: float  # chance that verification reaches the node
    likeliest: Sequence[tuple[int, float]]  # tokens and their probabilities, the likeliest first
    draw: Callable[[], Sequence[tuple[int, float]]]  # draws in order, with probabilities
    children: list["Child"] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    _left: float = 1.0  # chance that the node is reached and all its children so far are refused
    _mass: float = 1.0  # probability that the draft has left after the children
    _drawn: set[int] = field(default_factory=set)
    _passed: int = 0  # first likeliest tokens that were drawn

    def __post_init__(self) -> None:
        """Nothing is drawn or refused yet."""
        self._left, self._next = self.reached, self._likeliest_left()

    @cached_property
    def draws(self) -> Sequence[tuple[int, float]]:
        """Tokens and their probabilities in draw order; drawn when the first child is asked for."""
        return self.draw()

    def offer(self, model: AcceptanceModel) -> float:
        """Chance that the next child is accepted."""
        return self._left * model.before(len(self.children), self._next)

    def reveal(self, model: AcceptanceModel) -> "Child | None":
        """Draw the next child; None where nothing is left."""
        rank = len(self.children)
        if rank == len(self.draws):
            return None
        token, probability = self.draws[rank]
        hint = Hint(self._next, min(1.0, probability / max(self._mass, EMPTY)))
        accepted = model.after(rank, hint.own)
        child = Child(token, self._left * accepted)
        self.hints.append(hint)
        self.children.append(child)
        self._left *= 1 - accepted
        self._mass -= probability
        self._drawn.add(token)
        self._next = self._likeliest_left()
        return child

    def _likeliest_left(self) -> float:
        """Share of the likeliest token that was not drawn."""
        while self._passed < len(self.likeliest) and self.likeliest[self._passed][0] in self._drawn:
            self._passed += 1
        if self._passed == len(self.likeliest):
            return 0.0
        return min(1.0, self.likeliest[self._passed][1] / max(self._mass, EMPTY))


@dataclass(slots=True)
class Child:
    """One drawn child."""

    token: int
    reached: float  # chance that verification reaches it
    below: int = 0  # nodes that are reserved for its subtree


def marginal(worth: NDArray[np.float64]) -> list[float]:
    """What the first, second, ... node of a tree adds; never more than the one before.

    ``worth`` [n + 1] is G by nodes, of one depth; sizes that no tree of this depth has are skipped.
    """
    sizes = worth[1:]
    steps = np.diff(sizes[np.isfinite(sizes)], prepend=0.0)
    found: list[float] = np.minimum.accumulate(steps).tolist()
    return found


def spread(
    level: Sequence[Siblings],
    nodes: int,
    worth: Sequence[float],
    model: AcceptanceModel,
    stops: frozenset[int] = frozenset(),
) -> None:
    """Draw children below a level while they are the best use of the ``nodes`` that are left.

    ``worth`` is the marginal worth of a child's own subtree, itself first. Nodes for deeper levels are
    only reserved (``Child.below``): they are spread again once these are drawn. A token of ``stops``
    gets no children.
    """
    # by expected tokens: a further child of siblings (child None), or a node below a child
    queue: list[tuple[float, int, Siblings, Child | None]] = []
    number = 0

    def push(value: float, siblings: Siblings, child: Child | None) -> None:
        nonlocal number
        number += 1  # equal values keep their order
        heapq.heappush(queue, (-value, number, siblings, child))

    for siblings in level:
        push(siblings.offer(model), siblings, None)
    while queue and nodes > 0:
        _, _, siblings, child = heapq.heappop(queue)
        if child is None:
            child = siblings.reveal(model)
            if child is None:
                continue
            push(siblings.offer(model), siblings, None)
        else:
            child.below += 1
        nodes -= 1
        if child.below + 1 < len(worth) and child.token not in stops:
            push(child.reached * worth[child.below + 1], siblings, child)
