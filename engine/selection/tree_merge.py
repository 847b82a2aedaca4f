"""Grafts: copies that do not pay by themselves, beside the favourite's draft where rows cost nothing.

Who asks a draft model drafts few tokens where the draft is unsure, and there a copy is right now and
then. On a processor that multiplies by several rows as fast as by one, on a GPU, or where weights are
streamed, such rows are left over. On a modelled clock, rows 2 to 6 of a pass being free, `auto` was
1.067 times as fast as the best single drafter of a kind with that, and 1.041 without.
"""

from collections.abc import Mapping, Sequence

from engine.interfaces.drafter import Budget, Drafter
from engine.interfaces.target import Capability
from engine.selection.ngram_proposals import REPRICED
from engine.speculation.tree import DraftTree, graft
from engine.statistics.pass_cost import PassCost

FREE = 0.04  # of a pass, that all these rows may take: they bring 0.2 tokens, a tenth of a pass
WIDEST = 64  # rows of a pass that are asked about


class TreeMerge:
    """Hangs declined proposals beside drafts, as far as the pass has free rows."""

    def __init__(self, cost: PassCost, *, trees: bool) -> None:
        """``trees``: whether the target scores them."""
        self._cost, self._trees = cost, trees
        self._free: list[int] = []  # by rows: how many more take no longer
        self._rounds = 0

    def suit(self, drafter: Drafter | None, tree: DraftTree) -> bool:
        """Whether something may hang beside this draft: chosen tokens, and no state that goes with them."""
        chosen = tree.q is None and tree.warm is None and not tree.trace
        modelled = drafter is not None and Capability.DRAFT_MODEL in drafter.needs
        return self._trees and chosen and tree.is_chain and modelled

    def hang(
        self,
        trees: Mapping[int, DraftTree],
        declined: Mapping[int, DraftTree],
        budgets: Sequence[Budget],
    ) -> dict[int, DraftTree]:
        """The trees of a pass, by request's place in the batch, with what was declined for some."""
        grown = dict(trees)
        free = self._free_beside(sum(map(len, trees.values()))) if declined else 0
        for at, copy in declined.items():
            before = len(grown[at])
            grown[at] = graft(grown[at], copy, min(before + free, budgets[at].nodes + 1))
            free -= len(grown[at]) - before
        return grown

    def _free_beside(self, rows: int) -> int:
        """Rows that a pass of so many may have more for the same seconds."""
        if self._rounds % REPRICED == 0:
            self._free = _free(self._cost.each(range(1, WIDEST + 1)))
        self._rounds += 1
        return self._free[rows - 1] if rows <= WIDEST else 0


def _free(seconds: Sequence[float]) -> list[int]:
    """How many rows more take no longer, behind 1, 2, ... rows; ``seconds`` never fall."""
    found, last = [], 0
    for at, own in enumerate(seconds):
        while last + 1 < len(seconds) and seconds[last + 1] <= (1 + FREE) * own:
            last += 1
        found.append(max(0, last - at))
    return found
