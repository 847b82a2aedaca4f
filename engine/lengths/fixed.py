"""Fixed lengths: every draft is as long as the drafter's own default."""

from collections.abc import Sequence

from engine.protocols import Budget, Context, Outcome


class Fixed:
    """Never adapts; for comparisons and for proofs that want every draft at full length."""

    def budgets(self, batch: Sequence[Context], longest: Budget) -> list[Budget]:
        """The same budget for all."""
        return [longest] * len(batch)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to learn."""

    def forget(self, request: int) -> None:
        """Nothing to drop."""
