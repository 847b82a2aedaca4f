"""Which cells of llama.cpp's cache each sequence sees, in the order in which they were taken.

llama.cpp adds up attention in the order of cells, and gives the lowest free cells to new tokens. Where a
refused draft left a gap below the kept tokens, a later token would be added before an earlier one: the
same text, but other bits than plain decoding. So cells that are given up below the last one in use are
held by a sequence of their own. They are free again when nothing else is cached, or after a compaction.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from engine.speculation.common_prefix import common_prefix


class Cells:
    """The cells below the first free one, and the sequences that see them."""

    def __init__(self) -> None:
        self._of: dict[int, list[int]] = {}  # sequence -> its cells, by position
        self._users: list[int] = []  # sequences of each cell; one that is only held has one
        self.held = 0

    @property
    def top(self) -> int:
        """The first free cell."""
        return len(self._users)

    @property
    def seen(self) -> int:
        """Cells that a sequence sees."""
        return len(self._users) - self.held

    def of(self, sequence: int) -> Sequence[int]:
        """The cells of a sequence, by position."""
        return self._of.get(sequence, ())

    def sequences(self) -> list[int]:
        """Those that see cells."""
        return [sequence for sequence, cells in self._of.items() if cells]

    def add(self, sequences: Sequence[int]) -> None:
        """The first free cell is taken for the next position of these sequences."""
        for sequence in sequences:
            self._of.setdefault(sequence, []).append(len(self._users))
        self._users.append(len(sequences))

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """``target``, which ends at ``start``, also sees positions [start, stop) of ``source``."""
        cells = self._of.get(source, [])[start:stop]
        self._of.setdefault(target, []).extend(cells)
        for cell in cells:
            self._users[cell] += 1

    def remove(self, sequence: int, start: int) -> list[range]:
        """A sequence forgets its positions from ``start`` on; returns those that must be held first."""
        cells = self._of.get(sequence, [])
        gone = cells[start:]
        del cells[start:]
        for cell in gone:
            self._users[cell] -= 1
        while self._users and not self._users[-1]:
            self._users.pop()
        gaps = [
            p for p, cell in enumerate(gone, start) if cell < self.top and not self._users[cell]
        ]
        for position in gaps:
            self._users[gone[position - start]] = 1
        self.held += len(gaps)
        return list(_runs(gaps))

    def clear(self) -> None:
        """Every cell is free."""
        self._of.clear()
        self._users.clear()
        self.held = 0

    def shared(self, sequence: int, others: Iterable[int]) -> tuple[int, int]:
        """Which of ``others`` begins with most of the same cells, and how many these are; or itself and 0."""
        own = self.of(sequence)
        lengths = ((other, common_prefix(own, self.of(other))) for other in others)
        return max(lengths, key=lambda pair: pair[1], default=(sequence, 0))


def _runs(positions: Sequence[int]) -> Iterable[range]:
    """Consecutive positions, together."""
    for _, group in groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0]):
        run = [position for _, position in group]
        yield range(run[0], run[-1] + 1)
