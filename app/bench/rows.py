"""Rows: what is claimed, what was measured of it, and whether it holds."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import override

from app.bench.report import Machine, describe_machine, write_record
from app.terminal import show_progress, write_lines


@dataclass(frozen=True, slots=True)
class Row:
    """One claim; ``figures`` are the numbers that the verdict is based on."""

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


@dataclass
class RowReport:
    """The rows of one run: printed and written to a file as they come."""

    file: Path | None
    more: Mapping[str, Any] = field(default_factory=dict)  # also in the file
    machine: Machine = field(default_factory=describe_machine)
    rows: list[Row] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def head(self, *lines: str) -> None:
        """What is measured, and where."""
        write_lines(lines)

    def add(self, rows: Sequence[Row], figures: Iterable[str] = ()) -> None:
        """Show some rows, then ``figures``; raises OutputFileError."""
        show_progress("")
        self.rows += rows
        for one in rows:
            took = f" ({one.seconds:.0f} s)" if one.seconds else ""
            verdict = "holds" if one.holds else "MISSED"
            write_lines(
                [f"\n{one.claim}: {verdict}{took}", *(f"  {p}" for p in one.says.split("; "))]
            )
        write_lines(figures)
        written = [{**asdict(one), "figures": dict(one.figures)} for one in self.rows]
        write_record(self.file, {"machine": asdict(self.machine), **self.more, "rows": written})

    def close(self) -> int:
        """Print the last line; the exit code: 0 only if every row holds."""
        missed = [one.claim for one in self.rows if not one.holds]
        verdict = f"missed: {', '.join(missed)}" if missed else "every claim holds"
        held, minutes = len(self.rows) - len(missed), (time.perf_counter() - self.started) / 60
        write_lines([f"{held} of {len(self.rows)} claims hold in {minutes:.1f} minutes; {verdict}"])
        return 1 if missed else 0
