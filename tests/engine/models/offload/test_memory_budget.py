"""Room: parts that never exceed their limit and grow with it."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import ModelUnusable
from engine.models.offload.memory_budget import BUFFERS, FEWEST_ROWS, MOST_ROWS, divide

LIMITS = st.integers(1 << 20, 1 << 37)


@given(limit=LIMITS, fixed=st.integers(0, 1 << 32), row=st.integers(1, 1 << 24))
def test_the_parts_fit_the_limit(limit: int, fixed: int, row: int) -> None:
    try:
        room = divide(limit, fixed, row)
    except ModelUnusable:
        assume(False)
    assert fixed + BUFFERS * room.buffer + room.held + room.widest * row <= limit
    assert room.held >= 0
    assert FEWEST_ROWS <= room.widest <= MOST_ROWS


@given(limit=LIMITS, row=st.integers(1, 1 << 20))
def test_more_memory_never_means_shorter_passes(limit: int, row: int) -> None:
    try:
        less = divide(limit, 0, row)
    except ModelUnusable:
        assume(False)
    assert divide(2 * limit, 0, row).widest >= less.widest


def test_a_refusal_says_what_is_needed() -> None:
    with pytest.raises(ModelUnusable, match="limit of 100 MB is too small"):
        divide(100_000_000, 90_000_000, 10_000)
