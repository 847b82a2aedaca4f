"""Cells of llama.cpp's cache: every sequence's cells are in the order of its positions."""

from hypothesis import given
from hypothesis import strategies as st

from engine.models.gguf.cells import Cells

STEPS = st.lists(st.tuples(st.sampled_from(["add", "copy", "remove"]), st.integers(0, 3), st.integers(0, 9)))


@given(STEPS)
def test_cells_stay_in_order_and_gaps_are_held(steps):
    """Against a cache that llama.cpp would keep: a set of sequences for each cell."""
    cells, cache, held = Cells(), [], 9
    for kind, sequence, number in steps:
        seen = list(cells.of(sequence))
        if kind == "add":
            assert cells.top == len(cache), "a new token takes the first free cell"
            cells.add((sequence,))
            cache.append({sequence})
        elif kind == "copy" and not cells.of(number % 4):
            cells.copy(sequence, number % 4, 0, len(seen))
            for cell in seen:
                cache[cell].add(number % 4)
        elif kind == "remove":
            for gap in cells.remove(sequence, number):
                for position in gap:
                    cache[seen[position]].add(held)
            for cell in seen[number:]:
                cache[cell].discard(sequence)
            while cache and not cache[-1]:
                cache.pop()
        assert all(cache), "no free cell lies below one in use"
        assert cells.top == len(cache)
        assert cells.held == sum(users == {held} for users in cache)
        for each in range(4):
            own = list(cells.of(each))
            assert own == sorted(cell for cell, users in enumerate(cache) if each in users)
