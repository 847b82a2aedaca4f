"""Row: one claim, what was measured of it, and whether it holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; ``figures`` is what the verdict rests on, in words and numbers."""

    claim: str
    holds: bool
    says: str  # one sentence with the numbers
    figures: tuple[tuple[str, float], ...] = ()
    seconds: float = 0.0  # that showing it took


@dataclass(frozen=True, slots=True)
class Check:
    """A number against the bound that it must reach."""

    name: str
    value: float
    least: float

    @property
    def holds(self) -> bool:
        """Whether the bound is reached."""
        return self.value >= self.least

    @override
    def __str__(self) -> str:
        """As the table shows it."""
        mark = "" if self.holds else " MISSED"
        return f"{self.name} {self.value:.3f} (at least {self.least:g}){mark}"


def row(claim: str, checks: list[Check], figures: Mapping[str, float]) -> Row:
    """A row that holds if every check does."""
    says = "; ".join(str(check) for check in checks)
    return Row(claim, all(check.holds for check in checks), says, tuple(figures.items()))
