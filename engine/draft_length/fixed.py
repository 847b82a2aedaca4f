"""Fixed lengths: every draft is as long as the drafter's own default."""

from collections.abc import Sequence

from typing_extensions import override

from engine.interfaces.drafter import (
    Budget,
    Context,
    DrafterResources,
    DraftLength,
)
from engine.request import Option

EXIT_LAYER = Option(
    "exit_layer", "layers that draft in early exit; 0: the drafter's own", 0, 0, 1024
)


class Fixed(DraftLength):
    """Never adapts; for comparisons and for tests that need every draft at full length."""

    options = (EXIT_LAYER,)

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Read the options."""
        self._exit = int(EXIT_LAYER.of(parts.options)) or None

    @override
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The longest for all."""
        return [
            Budget(budget.depth, budget.nodes, exact=True, exit_layer=self._exit)
            for budget in longest
        ]
