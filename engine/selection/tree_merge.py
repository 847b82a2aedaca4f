"""Merges proposals that do not pay into the leader's draft, where rows of the pass cost nothing.

A draft model drafts few tokens where it is unsure, and there a copy is right from time to time. A
processor that multiplies by several rows as fast as by one, a GPU, or streamed weights leave such rows
free. On a simulated clock with rows 2 to 6 free, `auto` was 1.067 times as fast as the best single
drafter of a task with merged trees, and 1.041 times without.
"""

from collections.abc import Mapping, Sequence

from engine.interfaces.drafter import Budget, Drafter
from engine.interfaces.target import Capability
from engine.selection.tuning import TUNING, Tuning
from engine.speculation.tree import DraftTree, graft
from engine.statistics.pass_cost import PassCost


class TreeMerge:
    """Adds declined proposals to drafts, within the free rows of the pass."""

    def __init__(self, cost: PassCost, *, trees: bool, tuning: Tuning = TUNING) -> None:
        """``trees``: whether the target scores them."""
        self._cost, self._trees, self._tuning = cost, trees, tuning
        self._free: list[int] = []  # by rows of a pass: how many more take no longer
        self._rounds = 0

    def suits(self, drafter: Drafter | None, tree: DraftTree) -> bool:
        """Whether something may be added: the draft is a chain of chosen tokens without states."""
        chosen = tree.q is None and tree.warm is None and not tree.trace
        modelled = drafter is not None and Capability.DRAFT_MODEL in drafter.needs
        return self._trees and chosen and tree.is_chain and modelled

    def merge(
        self,
        trees: Mapping[int, DraftTree],
        declined: Mapping[int, DraftTree],
        budgets: Sequence[Budget],
    ) -> dict[int, DraftTree]:
        """The trees of a pass by place in the batch, with the proposals declined for some of them."""
        grown = dict(trees)
        free = self._free_rows(sum(map(len, trees.values()))) if declined else 0
        for at, copy in declined.items():
            before = len(grown[at])
            grown[at] = graft(grown[at], copy, min(before + free, budgets[at].nodes + 1))
            free -= len(grown[at]) - before
        return grown

    def _free_rows(self, rows: int) -> int:
        """Rows that a pass of ``rows`` may get for the same seconds."""
        widest = self._tuning.widest
        if self._rounds % self._tuning.price_rounds == 0:
            seconds = self._cost.each(range(1, widest + 1))
            self._free = _free(seconds, 1 + self._tuning.free_cost)
        self._rounds += 1
        return self._free[rows - 1] if rows <= widest else 0


def _free(seconds: Sequence[float], factor: float) -> list[int]:
    """By rows 1, 2, ...: how many more rows take at most ``factor`` times the seconds."""
    found, last = [], 0
    for at, own in enumerate(seconds):
        while last + 1 < len(seconds) and seconds[last + 1] <= factor * own:
            last += 1
        found.append(max(0, last - at))
    return found
