"""How a limit of memory is divided between what stays, what moves and what a pass needs."""

from dataclasses import dataclass

from engine.errors import ModelUnusable

BUFFERS = 4  # one is multiplied, one is ready, two are being filled; few, so that each is large
LARGEST_BUFFER, SMALLEST_BUFFER = 32 << 20, 1 << 20
ROWS_SHARE = 4  # a pass may take this part of the limit for its own rows
MOST_ROWS, FEWEST_ROWS = 2049, 16
LIBRARY = 320 << 20  # at 1 GB: its code, its copies while it multiplies, the allocator's rests


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Bytes, all inside one limit."""

    buffer: int  # of each of ``BUFFERS``
    held: int  # weights that are read once and stay
    widest: int  # rows of the longest pass


def divide(limit: int, fixed: int, row: int) -> MemoryBudget:
    """``fixed`` bytes are taken already, a pass takes ``row`` bytes for each row.

    Raises ModelUnusable when the limit is too small to stream anything.
    """
    library = min(LIBRARY, limit // 3)
    buffer = min(LARGEST_BUFFER, max(SMALLEST_BUFFER, limit // (8 * BUFFERS)))
    needed = fixed + library + BUFFERS * buffer + FEWEST_ROWS * row
    if limit < needed:
        raise ModelUnusable(
            f"a limit of {limit / 1e6:.0f} MB is too small to stream this model: its embedding, "
            f"buffers and a short pass need {needed / 1e6:.0f} MB; raise the limit"
        )
    spare = (limit - needed) // row
    share = limit // ROWS_SHARE // row
    widest = max(FEWEST_ROWS, min(share, MOST_ROWS, FEWEST_ROWS + spare // 2))
    return MemoryBudget(buffer, limit - needed - (widest - FEWEST_ROWS) * row, widest)
