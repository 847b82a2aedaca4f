"""Plain decoding: a tree of one node."""

from collections.abc import Sequence

from typing_extensions import override

from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources
from engine.speculation.tree import DraftTree, single


class Plain(Drafter):
    """Proposes nothing; the baseline that every other drafter must equal token for token."""

    title = "Plain"
    summary = "One token per pass of the model, without drafts: the baseline."
    max_draft = Budget(depth=0, nodes=0)

    def __init__(self, parts: DrafterResources) -> None:
        """Need nothing of ``parts``."""

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """The newest token alone."""
        return [single(context.ids[-1]) for context in batch]
