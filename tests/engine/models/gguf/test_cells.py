"""Cells of llama.cpp's cache: every sequence's cells are in the order of its positions."""

from hypothesis import given
from hypothesis import strategies as st

from engine.models.gguf.cells import Cells

HELD = 9
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "copy", "remove"]), st.integers(0, 3), st.integers(0, 9))
)


class Cache:
    """What llama.cpp would hold: a set of sequences for each cell, a new token in the first free one."""

    def __init__(self):
        self.cells = []

    def add(self, cells, sequence, _):
        assert cells.top == len(self.cells)
        cells.add((sequence,))
        self.cells.append({sequence})

    def copy(self, cells, sequence, number):
        seen, target = list(cells.of(sequence)), number % 4
        if not cells.of(target):
            cells.copy(sequence, target, 0, len(seen))
            for cell in seen:
                self.cells[cell].add(target)

    def remove(self, cells, sequence, start):
        seen = list(cells.of(sequence))
        for gap in cells.remove(sequence, start):
            for position in gap:
                self.cells[seen[position]].add(HELD)
        for cell in seen[start:]:
            self.cells[cell].discard(sequence)
        while self.cells and not self.cells[-1]:
            self.cells.pop()


@given(STEPS)
def test_cells_stay_in_order_and_gaps_are_held(steps):
    cells, cache = Cells(), Cache()
    for kind, sequence, number in steps:
        getattr(cache, kind)(cells, sequence, number)
        assert all(cache.cells), "no free cell lies below one in use"
        assert cells.top == len(cache.cells)
        assert cells.held == sum(users == {HELD} for users in cache.cells)
        for each in range(4):
            own = [cell for cell, users in enumerate(cache.cells) if each in users]
            assert list(cells.of(each)) == own
