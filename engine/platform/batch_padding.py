"""Pad a llama.cpp batch with dummy rows where a wider pass is faster.

What it does: llama.cpp has one kernel for a single row and others for blocks of rows; the rows left
over from a block are multiplied one by one. So a wider pass may take less time. Which widths gain is
measured when a file is loaded, in the time that a small model needs for it.

Gain, milliseconds of a pass with AVX-512, 303M parameters:

    rows                       1      2      8     10     12     14     16
    8-bit weights           21.7   16.0
    4-bit weights (K)       11.2   16.2   58.3   67.2   75.9   85.5   66.9

Without AVX-512, llama.cpp multiplies 8-bit weights by two rows at a time:

    rows                       1      2      3      4      5      6      7      8      9     10
    8-bit weights           27.7   50.2   77.8   59.8   97.1   74.2  106.8   84.4  124.8   97.9

With AVX-512 it takes blocks of four of them:

    rows                       1      3      4      5      6      7      8      9     10     12
    8-bit weights           16.8   30.6   33.6   51.0   54.9   58.7   48.2   65.5   70.1   60.7

Delete when: ``choose_padding`` finds nothing for the files that people use: llama.cpp then pads itself.
"""

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

TRIALS, LEAST_TRIALS = 9, 2  # passes of one row and of two, alternating
TRIAL_SECONDS = 1.0  # of a large file's, after which no more are made than the least
CLEARLY = 0.9  # of a pass of one row: two rows must take less
BLOCK, PARTS = 16, (8, 10, 12, 14)  # rows
BLOCK_TRIALS = 4  # of the block and each part, alternating; the first ones build kernels
AFFORDABLE = 0.025  # seconds of one row's pass; blocks of larger models take too long to measure
ODD, ODD_TRIALS = 3, 4  # rows; passes of 3 and 4 rows, alternating
ODD_AFFORDABLE = 0.1  # seconds of one row's pass: these passes are narrow
QUAD, QUADS = 4, 32  # rows of a small block; most rows of a pass that is made of whole ones
WORTHWHILE = 0.95  # of a part's pass: the whole block must take less

Timed = Callable[[int, int], float]
"""(rows, dummy rows) -> seconds of the pass."""


def row_blocks(padding: Mapping[int, int]) -> tuple[int, ...]:
    """Widths of a pass at which a block begins: one row less costs far less.

    With 4-bit weights seventeen rows cost a whole pass of one row more than sixteen.
    """
    begin = (rows for rows in range(QUAD + 1, BLOCK, QUAD) if padding.get(rows) == QUAD - 1)
    return (*(begin if QUAD + 1 in padding else ()), BLOCK + 1)


def choose_padding(timed: Timed) -> dict[int, int]:
    """Rows of a pass -> dummy rows to add, where that is faster."""
    ratios: list[float] = []
    singles: list[float] = []
    until = perf_counter() + TRIAL_SECONDS
    while len(ratios) < TRIALS and (len(ratios) < LEAST_TRIALS or perf_counter() < until):
        two = timed(1, 1)
        singles.append(timed(1, 0))
        ratios.append(two / singles[-1])
    padding = {1: 1} if median(ratios[1:]) < CLEARLY else {}  # the first passes build kernels
    single = median(singles)
    if single <= ODD_AFFORDABLE:
        padding |= _even_widths(timed) or _whole_quads(timed)
    return padding | (_whole_blocks(timed) if single <= AFFORDABLE else {})


def _even_widths(timed: Timed) -> dict[int, int]:
    """One dummy row for every odd width below a block, where three rows take longer than four."""
    ratios = [timed(ODD + 1, 0) / timed(ODD, 0) for _ in range(ODD_TRIALS)][1:]
    if median(ratios) > WORTHWHILE:
        return {}
    return dict.fromkeys(range(ODD, BLOCK, 2), 1)


def _whole_quads(timed: Timed) -> dict[int, int]:
    """Up to the next multiple of four, where six rows take longer than eight."""
    least = 2 * QUAD - 2
    ratios = [timed(2 * QUAD, 0) / timed(least, 0) for _ in range(ODD_TRIALS)][1:]
    if median(ratios) > WORTHWHILE:
        return {}
    return {rows: -rows % QUAD for rows in range(QUAD + 1, QUADS) if rows % QUAD}


def _whole_blocks(timed: Timed) -> dict[int, int]:
    """Up to a whole block, for the widths that take longer than the block."""
    widths = (*PARTS, BLOCK)
    rounds = [{rows: timed(rows, 0) for rows in widths} for _ in range(BLOCK_TRIALS)][1:]
    least = BLOCK
    for part in reversed(PARTS):
        if median(found[BLOCK] / found[part] for found in rounds) > WORTHWHILE:
            break
        least = part
    return {rows: BLOCK - rows for rows in range(least, BLOCK)}
