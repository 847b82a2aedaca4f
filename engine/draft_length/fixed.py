"""Fixed lengths: every draft is as long as the drafter's own default."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome, StopRule


class Fixed:
    """Never adapts; for comparisons and for tests that need every draft at full length.

    Option ``exit_layer``: the layer where early exit leaves the network.
    """

    steers_by: ClassVar[frozenset[StopRule]] = frozenset()
    prompt_rows: ClassVar[int] = 0

    def __init__(self, parts: DrafterResources, drafter: str) -> None:
        """Read the options."""
        exit_layer = parts.options.get("exit_layer")
        self._exit = None if exit_layer is None else int(exit_layer)

    def prompt(self, context: Context, states: Tensor) -> None:
        """Nothing is wanted of the prompt."""

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """The longest for all."""
        return [
            Budget(budget.depth, budget.nodes, exact=True, exit_layer=self._exit)
            for budget in longest
        ]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""

    def forget(self, request: int) -> None:
        """Nothing to drop."""
