"""Where an exit's chain ends, and its siblings: as many as gain most, where it is least sure."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_length.exit_rules import Exit, ExitSiblings, ExitStop
from engine.draft_length.tuning import TUNING

BIN_WEIGHT = TUNING.bin_weight
NOTHING = np.zeros(TUNING.bins)


def exit_of(*caught, alpha=0.5):
    return Exit(NOTHING, NOTHING, alpha, caught)  # a token holds as surely as the draft says


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
    st.lists(st.floats(0, 0.5), min_size=1, max_size=3),
    st.lists(st.floats(0, 0.4), min_size=0, max_size=6),
)
def test_no_other_number_of_candidates_gains_more(probabilities, shares, steps):
    caught = tuple(np.minimum.accumulate(shares).tolist())
    prices = np.array([0.0, *np.cumsum(steps)])
    exit_ = exit_of(*caught)

    def gain(counts):
        found, reach = 0.0, 1.0
        for probability, count in zip(probabilities, counts, strict=True):
            found += reach * (1 - exit_.survives(probability)) * sum(caught[:count])
            reach *= exit_.survives(probability)
        return found - prices[sum(counts)]

    chosen = ExitSiblings(exit_, probabilities, lambda _: prices).beside(len(probabilities))
    every = product(range(len(caught) + 1), repeat=len(probabilities))
    assert sum(chosen) < len(prices)
    assert gain(chosen) == pytest.approx(max(gain(c) for c in every if sum(c) < len(prices)))


def test_a_token_is_as_sure_as_those_of_its_confidence_were():
    matches, misses = NOTHING.copy(), NOTHING.copy()
    matches[-1], misses[-1] = 6.0, 2.0
    assert Exit(matches, misses, 0.5).survives(0.9) == pytest.approx((6 + BIN_WEIGHT * 0.9) / (8 + BIN_WEIGHT))  # fmt: skip
    assert Exit(matches, misses, 0.5).survives(0.1) == pytest.approx(0.1)


def test_siblings_that_pay_make_a_draft_longer():
    """0.8 of a draft survives; one more token brings half of that alone and 0.7 with two beside it."""
    for width, ends in ((1, True), (3, False)):
        stop = ExitStop(exit_of(0.3, 0.1), [0.5, 0.5, 0.5], width)
        assert stop.drawn(0.8) is ends


def test_a_draft_ends_where_the_next_token_does_not_pay():
    matches, misses = NOTHING.copy(), NOTHING.copy()
    matches[-1], misses[-1] = 6.0, 2.0  # three in four of the sure ones are right
    stop = ExitStop(Exit(matches, misses, alpha=0.8), prices=[0.3] * 6)
    survived = (6 + BIN_WEIGHT * 0.9) / (8 + BIN_WEIGHT)
    reach = [survived**n * 0.8 for n in range(1, 7)]
    assert reach[2] > 0.3 > reach[3]
    assert [stop.drawn(0.9) for _ in range(4)] == [False, False, False, True]


def test_an_unsure_token_or_the_last_price_ends_a_draft():
    assert ExitStop(exit_of(alpha=0.9), [0.1] * 3).drawn(0.05)
    sure = ExitStop(exit_of(alpha=0.9), [0.1] * 3)
    assert [sure.drawn(1.0) for _ in range(3)] == [False, False, True]
