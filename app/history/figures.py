"""What was measured, added up for people: by model, drafter, task class and day."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from app.history.file import HistoryFile
from app.history.records import Conditions
from app.history.task_class import TaskClass, TemperatureClass

# One walk over all runs; whatever a chart asks for is a sum of these rows. Plain decoding takes what it
# took: by the cost that was measured beforehand it had been faster than itself.
CELLS = """
SELECT replies.model, runs.drafter, replies.task, date(replies.at, 'localtime'), count(*),
       sum(runs.emitted), sum(runs.seconds),
       sum(CASE runs.drafter WHEN 'none' THEN runs.seconds ELSE runs.plain_seconds END),
       sum((SELECT sum(value) FROM json_each(runs.depths, '$[0]'))),
       sum((SELECT sum(value) FROM json_each(runs.depths, '$[1]')))
FROM runs JOIN replies ON replies.id = runs.reply
GROUP BY 1, 2, 3, 4 ORDER BY 4, 1, 2, 3
"""

SEEN = """
SELECT model, draft, machine, temperature, task, max(id) FROM replies
WHERE draft IS NOT NULL AND machine IS NOT NULL AND drafter <> 'remote'
GROUP BY model, draft, temperature, task ORDER BY max(id) DESC
"""


@dataclass(frozen=True, slots=True)
class Sums:
    """Runs of drafters added up; seconds of decoding, prompts left out."""

    runs: int = 0
    emitted: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0  # that plain decoding would have taken, by its measured cost
    evaluated: int = 0  # drafted tokens that the model looked at
    accepted: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        both = (getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        return Sums(*both)

    @property
    def rate(self) -> float | None:
        """Tokens per second; None where nothing was timed."""
        return self.emitted / self.seconds if self.seconds > 0 else None

    @property
    def pace(self) -> float | None:
        """Times plain decoding."""
        timed = self.seconds > 0 and self.plain_seconds > 0
        return self.plain_seconds / self.seconds if timed else None

    @property
    def acceptance(self) -> float | None:
        """Share accepted of the drafted tokens that were looked at; None where there were none."""
        return self.accepted / self.evaluated if self.evaluated else None


@dataclass(frozen=True, slots=True)
class Cell:
    """The runs of one drafter with one model, on one kind of task, on one day of this place."""

    model: str
    drafter: str
    task: str
    day: str  # ISO 8601
    sums: Sums


class Figures:
    """Reads what ``Measurements`` wrote; may be called from any thread."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def cells(self) -> list[Cell]:
        """Everything that is stored, oldest day first."""
        return [_cell(*row) for row in self._file.read(CELLS)]

    def seen(self) -> list[Conditions]:
        """Conditions that replies ran under, with the newest machine of each; newest first."""
        found = (_conditions(*row[:5]) for row in self._file.read(SEEN))
        return [conditions for conditions in found if conditions is not None]


def added_by(cells: Iterable[Cell], field: str) -> dict[str, Sums]:
    """Sums by one field of the cells, in the order in which its values come."""
    sums: defaultdict[str, Sums] = defaultdict(Sums)
    for cell in cells:
        sums[getattr(cell, field)] += cell.sums
    return dict(sums)


def _cell(model: str, drafter: str, task: str | None, day: str, *sums: Any) -> Cell:
    return Cell(model, drafter, task or "unknown", day, Sums(*(value or 0 for value in sums)))


def _conditions(
    model: str, draft: str, machine: str, temperature: str, task: str
) -> Conditions | None:
    """None for a class that this version does not know."""
    try:
        return Conditions(model, draft, machine, TemperatureClass(temperature), TaskClass(task))
    except ValueError:
        return None
