"""Which passes get dummy rows: those that were measured to be faster, and no others."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from engine.platform.batch_padding import (
    AFFORDABLE,
    LEAST_TRIALS,
    TRIALS,
    choose_padding,
    row_blocks,
)

STEEP = {1: 11.2, 2: 16.2, 8: 58.3, 10: 67.2, 12: 75.9, 14: 85.5, 16: 66.9}  # milliseconds, Q4_K_M
# fmt: off
PAIRS = {1: 27.7, 2: 50.2, 3: 77.8, 4: 59.8, 5: 97.1, 6: 74.2, 7: 106.8, 8: 84.4, 9: 124.8, 10: 97.9,
         11: 134.8, 12: 114.4, 13: 154.6, 14: 140.0, 15: 171.5, 16: 154.2}  # 8 bits without AVX-512
FOURS = {1: 16.8, 2: 26.9, 3: 30.6, 4: 33.6, 5: 51.0, 6: 54.9, 7: 58.7, 8: 48.2, 9: 65.5, 10: 70.1,
         11: 74.0, 12: 60.7, 13: 78.2, 14: 82.0, 15: 86.0, 16: 71.8, 17: 90.1, 18: 94.3, 19: 98.0,
         20: 85.1, 24: 98.5, 28: 112.3, 32: 126.4}  # 8 bits with AVX-512
# fmt: on
FLAT = {1: 21.7, 2: 16.0, 8: 20.0, 10: 24.0, 12: 26.0, 14: 29.0, 16: 32.0}


class Machine:
    """Passes take what a curve says, by rows and dummy rows together."""

    def __init__(
        self, milliseconds: Mapping[int, float], load: Callable[[int], float] = lambda _: 1.0
    ) -> None:
        self.curve, self.load = milliseconds, load
        self.passes: Counter[tuple[int, int]] = Counter()

    def __call__(self, rows: int, added: int) -> float:
        self.passes[rows, added] += 1
        usual = float(np.interp(rows + added, list(self.curve), list(self.curve.values())))
        return usual / 1e3 * self.load(sum(self.passes.values()))


@pytest.mark.parametrize(
    ("curve", "chosen"),
    [
        (STEEP, {12: 4, 13: 3, 14: 2, 15: 1}),  # parts of a block take longer than all of it
        (FLAT, {1: 1}),
        (PAIRS, dict.fromkeys((3, 5, 7, 9, 11, 13, 15), 1)),
        (FOURS, {rows: -rows % 4 for rows in range(5, 32) if rows % 4}),
        ({1: 10.0, 16: 40.0}, {}),  # every row costs something
        ({1: 10.0, 16: 10.3}, {}),  # all cost the same
    ],
)
def test_a_pass_gets_dummy_rows_where_it_is_faster_with_them(curve, chosen):
    assert choose_padding(Machine(curve)) == chosen
    for rows in chosen.keys() & curve.keys():
        assert curve[rows + chosen[rows]] < curve[rows]


@pytest.mark.parametrize(("curve", "blocks"), [(FOURS, (5, 9, 13, 17)), (STEEP, (17,))])
def test_a_block_begins_after_rows_that_are_multiplied_together(curve, blocks):
    assert row_blocks(choose_padding(Machine(curve))) == blocks


@pytest.mark.parametrize("first", range(1, 60, 7))
def test_a_machine_that_is_busy_for_a_moment_changes_nothing(first):
    def busy(passed: int) -> float:
        return 3.0 if first <= passed < first + 3 else 1.0

    for curve in (STEEP, FLAT, PAIRS, FOURS):
        assert choose_padding(Machine(curve, busy)) == choose_padding(Machine(curve))


@pytest.mark.parametrize(("seconds", "trials"), [(60.0, TRIALS), (0.0, LEAST_TRIALS)])
def test_a_large_file_is_not_measured_for_long(monkeypatch, seconds, trials):
    monkeypatch.setattr("engine.platform.batch_padding.TRIAL_SECONDS", seconds)
    slow = Machine({rows: 2000 * AFFORDABLE * ms for rows, ms in FLAT.items()})
    assert choose_padding(slow) == {1: 1}
    assert slow.passes == {(1, 0): trials, (1, 1): trials}
