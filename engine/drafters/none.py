"""Plain decoding: a tree of one node."""

from collections.abc import Sequence
from typing import ClassVar

from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, StopRule
from engine.interfaces.target import Capability
from engine.speculation.tree import DraftTree, single


class Plain:
    """Proposes nothing; the baseline that every other drafter must equal token for token."""

    needs: ClassVar[frozenset[Capability]] = frozenset()
    length: ClassVar[Budget] = Budget(depth=0, nodes=0)
    heeds: ClassVar[frozenset[StopRule]] = frozenset()
    policy: ClassVar[str] = "fixed"
    declines: ClassVar[bool] = False

    def __init__(self, parts: DrafterResources) -> None:
        """Need nothing of ``parts``."""

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """The newest token alone."""
        return [single(context.ids[-1]) for context in batch]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""

    def forget(self, request: int, slot: int) -> None:
        """Nothing to drop."""
